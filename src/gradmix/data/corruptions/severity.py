"""How strong each corruption is: five severities for each of three families of image size.

The numbers are those of Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common
Corruptions and Perturbations" (ICLR 2019), as set in the scripts that generated the published data
sets (github.com/hendrycks/robustness, ImageNet-C/create_c: make_cifar_c.py, make_tinyimagenet_c.py,
make_imagenet_c.py).
"""

from __future__ import annotations

from typing import Any

from ...errors import UserError, choose

SEVERITIES = (1, 2, 3, 4, 5)
# Largest longer side of an image that takes the table; images beyond the last take ImageNet-C's.
_FAMILIES = {"CIFAR-10-C": 32, "TinyImageNet-C": 64, "ImageNet-C": None}
_ODD = 244 / 224  # ImageNet-C's elastic settings are shares of 244 pixels on images of 224

# One row per family, in the order above; one entry per severity.
_SETTINGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    # standard deviation, in units of the full range
    "gaussian_noise": (
        (0.04, 0.06, 0.08, 0.09, 0.10),
        (0.04, 0.08, 0.12, 0.15, 0.18),
        (0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    # photons that make full white
    "shot_noise": ((500, 250, 100, 75, 50), (250, 100, 50, 30, 15), (60, 25, 12, 5, 3)),
    # share of values replaced
    "impulse_noise": (
        (0.01, 0.02, 0.03, 0.05, 0.07),
        (0.01, 0.02, 0.05, 0.08, 0.14),
        (0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    # radius of the disk, σ of the blur that takes the stairs off its edge
    "defocus_blur": (
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # σ, reach of the shuffle, rounds
    "glass_blur": (
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # radius, σ
    "motion_blur": (
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    # end (excluded) and step of the zoom factors, which begin at 1
    "zoom_blur": (
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    # mean and deviation of the flakes, their zoom, threshold; radius and σ of their motion; share of image
    "snow": (
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # weight of the image, weight of the frost, scale of the frost picture
    "frost": (
        ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
        ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    ),
    # amount, decay of its roughness
    "fog": (
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # added to the HSV value
    "brightness": (
        (0.05, 0.1, 0.15, 0.2, 0.3),
        (0.1, 0.2, 0.3, 0.4, 0.5),
        (0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    # factor
    "contrast": (
        (0.75, 0.5, 0.4, 0.3, 0.15),
        (0.4, 0.3, 0.2, 0.1, 0.05),
        (0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    # as shares of the side: strength and σ of the ripples, shift of the corners
    "elastic_transform": (
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        (
            (2 * _ODD, 0.7 * _ODD, 0.1 * _ODD),
            (2 * _ODD, 0.08 * _ODD, 0.2 * _ODD),
            (0.05 * _ODD, 0.01 * _ODD, 0.02 * _ODD),
            (0.07 * _ODD, 0.01 * _ODD, 0.02 * _ODD),
            (0.12 * _ODD, 0.01 * _ODD, 0.02 * _ODD),
        ),
    ),
    # scale of the small version
    "pixelate": (
        (0.95, 0.9, 0.85, 0.75, 0.65),
        (0.9, 0.8, 0.7, 0.6, 0.5),
        (0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    # quality
    "jpeg_compression": ((80, 65, 58, 50, 40), (65, 58, 50, 40, 25), (25, 18, 15, 10, 7)),
}


def family(height: int, width: int) -> str:
    """Return the data set whose severities apply to images of this size.

    >>> family(28, 28), family(64, 48), family(84, 84)
    ('CIFAR-10-C', 'TinyImageNet-C', 'ImageNet-C')
    """
    side = max(height, width)
    return next(name for name, largest in _FAMILIES.items() if largest is None or side <= largest)


def setting(name: str, severity: int, height: int, width: int) -> Any:
    """Return the published number or numbers of a corruption at severity 1 … 5 for images of a size.

    >>> setting("gaussian_noise", 3, 64, 64)
    0.12
    """
    choose("corruption", name, _SETTINGS)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1, 2, 3, 4 or 5, not {severity!r}")
    row = list(_FAMILIES).index(family(height, width))
    return _SETTINGS[name][row][SEVERITIES.index(severity)]
