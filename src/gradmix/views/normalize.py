"""From stored bytes to what the network is fed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.mapped_images import Pixels
from ..errors import choose

NORMALIZATIONS = ("data", "imagenet", "half")
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# A sample is enough to know a channel's mean; the whole set would be copied to float.
_SAMPLED_IMAGES = 5000
_SAMPLED_VALUES = 2**24  # 64 MB as float: fewer images, if they are large


@dataclass(frozen=True)
class Normalizer:
    """Channel means and standard deviations of images in [0, 1]; saved with the model."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def fit(images: Pixels, kind: str = "data") -> Normalizer:
        """Of images (N, C, H, W) uint8: ``data`` theirs, ``imagenet`` for published weights, ``half`` ½."""
        choose("normalisation", kind, NORMALIZATIONS)
        channels = images.shape[1]
        if kind == "half":
            return Normalizer((0.5,) * channels, (0.5,) * channels)
        if kind == "imagenet":
            if channels == 3:
                return Normalizer(_IMAGENET_MEAN, _IMAGENET_STD)
            return Normalizer((sum(_IMAGENET_MEAN) / 3,), (sum(_IMAGENET_STD) / 3,))
        values = images.shape[1] * images.shape[2] * images.shape[3]
        stride = max(1, len(images) // max(1, min(_SAMPLED_IMAGES, _SAMPLED_VALUES // values)))
        std, mean = torch.std_mean(images[::stride].float().div_(255), dim=(0, 2, 3))
        return Normalizer(tuple(mean.tolist()), tuple(std.clamp(min=1e-3).tolist()))

    def __call__(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8, or float in [0, 1], to normalised float32."""
        unit = images.float().div_(255) if images.dtype == torch.uint8 else images
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return (unit - mean).div_(std)
