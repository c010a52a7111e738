"""Color jitter as one affine map of color space per image.

Brightness, contrast, saturation, hue and gray are each affine in RGB, so their product is one 3×3
matrix and one offset per image: a single batched multiplication instead of five passes over the pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # Rec. 601
# RGB to YIQ: hue is a rotation in the I, Q plane.
_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


def factors(n: int, strength: float, generator: torch.Generator) -> Tensor:
    """Draw (n,) factors ~ U(max(0, 1 − strength), 1 + strength)."""
    low = max(0.0, 1 - strength)
    return low + (1 + strength - low) * torch.rand(n, generator=generator)


def color_matrix(saturation: Tensor, hue: Tensor) -> Tensor:
    """Return (N, 3, 3): rotation of the hue by ``hue`` turns, then saturation (0 = gray, 1 = unchanged)."""
    n = len(hue)
    to_yiq = torch.tensor(_YIQ)
    angle = 2 * math.pi * hue
    rotation = torch.zeros(n, 3, 3)
    rotation[:, 0, 0] = 1
    rotation[:, 1, 1] = rotation[:, 2, 2] = angle.cos()
    rotation[:, 1, 2] = -angle.sin()
    rotation[:, 2, 1] = angle.sin()
    turned: Tensor = torch.linalg.inv(to_yiq) @ rotation @ to_yiq
    grey = torch.tensor(_LUMA).expand(3, 3)
    s = saturation[:, None, None]
    return (s * torch.eye(3) + (1 - s) * grey) @ turned


def jitter(images: Tensor, brightness: Tensor, contrast: Tensor, matrix: Tensor | None = None) -> Tensor:
    """Apply to images (N, C, H, W) in [0, 1]; result clamped to [0, 1].

    x ↦ clamp( contrast·(M·brightness·x − m) + m ), m the image's mean gray after brightness.
    """
    n, channels, rows, columns = images.shape
    flat = images.reshape(n, channels, rows * columns)
    means = flat.mean(2) * brightness[:, None]  # (N, C)
    if channels == 3:
        luma = torch.tensor(_LUMA, device=images.device)
        m = (means * luma).sum(1)
    else:
        m = means[:, 0]
    gain = contrast * brightness
    offset = ((1 - contrast) * m)[:, None, None]
    if channels == 3 and matrix is not None:
        changed = torch.baddbmm(offset.expand(n, 3, 1), gain[:, None, None] * matrix, flat)
    else:
        changed = torch.addcmul(offset, gain[:, None, None], flat)
    return changed.clamp_(0, 1).view(images.shape)
