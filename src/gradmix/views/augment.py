"""SimCLR's augmentation, for a whole batch in a handful of tensor operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, choose
from .colour import colour_matrix, factors, jitter
from .geometry import crop_matrices, sample
from .normalize import NORMALIZATIONS, Normalizer


@dataclass(frozen=True)
class ViewSettings:
    """How a training view is drawn from an image."""

    image_size: int = 32  # side of what the network sees, in pixels
    channels: int = 3  # 1 = grey, 3 = colour
    normalize: str = "data"  # data, imagenet (for published weights) or half
    crop_scale: tuple[float, float] = (0.2, 1.0)  # share of the area that a crop keeps
    crop_ratio: tuple[float, float] = (0.75, 1.3333)  # width / height of a crop
    flip: bool = True  # mirror left-right half of the time; never on digits
    rotate: float = 0.0  # largest rotation, degrees
    brightness: float = 0.4  # factor in 1 ± this; likewise contrast and saturation
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1  # turn in ± this, 0.5 = opposite colour
    jitter_chance: float = 0.8  # share of images that are jittered
    grey_chance: float = 0.2  # share of colour images turned grey

    def __post_init__(self) -> None:
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise UserError(f"crop_scale must satisfy 0 < low <= high <= 1, not {low}, {high}")
        if self.channels not in (1, 3):
            raise UserError(f"channels must be 1 (grey) or 3 (colour), not {self.channels}")
        if self.image_size < 8:
            raise UserError(f"image_size must be at least 8 pixels, not {self.image_size}")
        narrow, wide = self.crop_ratio
        if not 0 < narrow <= wide:
            raise UserError(f"crop_ratio must satisfy 0 < low <= high, not {narrow}, {wide}")
        choose("normalize", self.normalize, NORMALIZATIONS)
        for name in ("rotate", "brightness", "contrast", "saturation", "hue"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        for name in ("jitter_chance", "grey_chance"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")


class Augment:
    """Draws a normalised view of every image of a batch; the same generator state gives the same bytes."""

    def __init__(self, settings: ViewSettings, normalizer: Normalizer) -> None:
        self.settings = settings
        self.normalizer = normalizer

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """images: (N, C, H, W) uint8 on any device; returns (N, C, S, S) float32 there.

        Random numbers are always drawn on the CPU, so that the views do not depend on the device.
        """
        s = self.settings
        n, channels = images.shape[:2]
        matrices = crop_matrices(n, s.crop_scale, s.crop_ratio, s.flip, s.rotate, generator)
        view = sample(images.float().div_(255), matrices, s.image_size)

        jittered = torch.rand(n, generator=generator) < s.jitter_chance
        one = torch.ones(n)
        brightness = torch.where(jittered, factors(n, s.brightness, generator), one).to(images.device)
        contrast = torch.where(jittered, factors(n, s.contrast, generator), one).to(images.device)
        matrix = None
        if channels == 3:
            saturation = torch.where(jittered, factors(n, s.saturation, generator), one)
            grey = torch.rand(n, generator=generator) < s.grey_chance
            saturation = saturation.masked_fill(grey, 0.0)
            hue = (2 * torch.rand(n, generator=generator) - 1) * s.hue
            matrix = colour_matrix(saturation, hue.masked_fill(~jittered, 0.0)).to(images.device)
        return self.normalizer(jitter(view, brightness, contrast, matrix))
