"""Any of the fifteen corruptions on a set of images, in chunks that fit the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ...errors import UserError, choose
from ...progress import progress
from .blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from .digital import contrast, elastic_transform, jpeg_compression, pixelate
from .draws import Draws
from .frost_pictures import FrostPictures, load_frost
from .noise import gaussian_noise, impulse_noise, shot_noise
from .severity import setting
from .weather import brightness, fog, frost, snow

# In the order in which tables print them. Each takes (images float64 in [0, 1], setting, draws).
CORRUPTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}
_VALUES_AT_ONCE = 1 << 21  # 16 MB of float64; the largest corruption holds about ten such arrays
# Products of matrices may differ in the last bit with the size of the batch. A value that is exactly half
# way between two levels (frequent, with means of integers) must still round to the same one.
_TIE_BREAK = 1e-6


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int = 0,
    frost: FrostPictures | None = None,
    first_index: int = 0,
) -> Tensor:
    """Corrupt uint8 images (N, 1 or 3, H, W); return uint8 of that shape.

    Image i depends on (seed, name, severity, first_index + i) and on its own pixels alone, so a set may be
    corrupted whole or in parts. How strong a severity is follows the size of the images: the tables of
    CIFAR-10-C to 32 pixels, TinyImageNet-C to 64, ImageNet-C beyond. Values are rounded, not cut off, to
    eight bits. ``frost`` None stands for :func:`load_frost`, with a warning if that has to generate.
    """
    work = CORRUPTIONS[choose("corruption", name, CORRUPTIONS)]
    if images.dim() != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8:
        raise UserError(
            f"images to corrupt must be uint8 (N, 1 or 3, H, W), not {images.dtype} {tuple(images.shape)}"
        )
    strength = setting(name, severity, *images.shape[2:])
    extra = {"pictures": _frost_or_warn(frost)} if name == "frost" else {}
    out = torch.empty_like(images)
    if not images.numel():
        return out
    at_once = max(1, _VALUES_AT_ONCE // images[0].numel())
    with progress(f"{name} {severity}", len(images)) as advance:
        for start in range(0, len(images), at_once):
            part = images[start : start + at_once]
            draws = Draws(seed, name, int(severity), first_index + start, len(part))
            changed = work(part.cpu().double() / 255, strength, draws, **extra)
            out[start : start + at_once] = (changed * 255 + _TIE_BREAK).round().clamp_(0, 255)
            advance(len(part))
    return out


def _frost_or_warn(given: FrostPictures | None) -> FrostPictures:
    pictures = given or load_frost()
    if given is None and pictures.generated:
        warnings.warn("no frost pictures found, so the frost is generated; results are not comparable with "
                      "published ones (give load_frost(folder), or put them in $GRADMIX_DATA/frost)",
                      stacklevel=3)  # fmt: skip
    return pictures
