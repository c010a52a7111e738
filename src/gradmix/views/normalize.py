"""From stored bytes to what the network is fed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import Pixels
from ..errors import UserError, choose

IMAGE_NORMALIZATIONS = ("data", "imagenet", "cifar", "clip", "tf", "half", "none")
AUTO = "auto"  # in a recipe: what the encoder's published weights were trained with
_Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # means and standard deviations of the channels
_PUBLISHED: dict[str, _Statistics] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),  # CIFAR10's, used for all data sets
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
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
        """Return the normalizer of a kind.

        For images (N, C, H, W) uint8: ``data`` their own; ``imagenet``, ``cifar`` and ``clip`` for published
        weights; ``tf`` (x − 127)/128 of bytes x; ``half`` ½; ``none`` leaves them in [0, 1].
        """
        choose("normalisation", kind, IMAGE_NORMALIZATIONS)
        channels = images.shape[1]
        if kind == "half":
            return Normalizer((0.5,) * channels, (0.5,) * channels)
        if kind == "tf":
            return Normalizer((127 / 255,) * channels, (128 / 255,) * channels)
        if kind == "none":
            return Normalizer((0.0,) * channels, (1.0,) * channels)
        if kind == "clip" and channels != 3:
            raise UserError("normalize clip is for color images: set channels to 3")
        if kind in _PUBLISHED:
            mean, std = _PUBLISHED[kind]
            return Normalizer(mean, std) if channels == 3 else Normalizer((sum(mean) / 3,), (sum(std) / 3,))
        values = images.shape[1] * images.shape[2] * images.shape[3]
        stride = max(1, len(images) // max(1, min(_SAMPLED_IMAGES, _SAMPLED_VALUES // values)))
        stds, means = torch.std_mean(images[::stride].float().div_(255), dim=(0, 2, 3))
        return Normalizer(tuple(means.tolist()), tuple(stds.clamp(min=1e-3).tolist()))

    def __call__(self, images: Tensor) -> Tensor:
        """Return images (N, C, H, W), uint8 or float in [0, 1], as normalized float32."""
        unit = images.float().div_(255) if images.dtype == torch.uint8 else images
        mean, std = self._statistics(images)
        return (unit - mean).div_(std)

    def inverse(self, images: Tensor) -> Tensor:
        """Return normalized images (N, C, H, W) as pixels in [0, 1], or beyond where they were beyond.

        >>> Normalizer((0.5,), (0.25,)).inverse(torch.ones(1, 1, 1, 1)).item()
        0.75
        """
        mean, std = self._statistics(images)
        return images * std + mean

    def _statistics(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        return mean, torch.tensor(self.std, device=images.device).view(-1, 1, 1)
