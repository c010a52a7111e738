"""SimCLR's augmentation, for a whole batch in a handful of tensor operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, choose
from ..world import ALONE, World
from .colour import colour_matrix, factors, jitter
from .geometry import crop_matrices, sample
from .normalize import NORMALIZATIONS, Normalizer

_GROWS_BY = 4  # pixels: few sizes, for each of which kernels are set up anew


@dataclass(frozen=True)
class ViewSettings:
    """How a training view is drawn from an image."""

    image_size: int = 32  # side of what the network sees, in pixels
    start_size: int | None = None  # side of the views at the beginning of training (None: no smaller)
    grow_after: float = 0.5  # share of the steps with views of start_size
    grow_until: float | None = None  # … after which they have full size (None: at once)
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
        if self.start_size is not None and not 8 <= self.start_size <= self.image_size:
            raise UserError(f"start_size must lie between 8 and image_size, not {self.start_size}")
        if not 0 <= self.grow_after <= 1:
            raise UserError(f"grow_after must lie between 0 and 1, not {self.grow_after}")
        if self.grow_until is not None and not self.grow_after <= self.grow_until <= 1:
            raise UserError(f"grow_until must lie between grow_after and 1, not {self.grow_until}")
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

    def sizes(self) -> dict[int, float]:
        """Sides of the views, in the order in which training comes to them; each with its share of the steps.

        >>> ViewSettings(image_size=32, start_size=20, grow_after=0.25).sizes()
        {20: 0.25, 32: 0.75}
        >>> ViewSettings(image_size=32, start_size=20, grow_after=0.25, grow_until=0.75).sizes()
        {20: 0.25, 24: 0.25, 28: 0.25, 32: 0.25}
        """
        if self.start_size is None or self.start_size == self.image_size:
            return {self.image_size: 1.0}
        between = range(self.start_size + _GROWS_BY, self.image_size, _GROWS_BY)
        if self.grow_until is None or not between:
            return {self.start_size: self.grow_after, self.image_size: 1 - self.grow_after}
        growing = dict.fromkeys(between, (self.grow_until - self.grow_after) / len(between))
        return {self.start_size: self.grow_after, **growing, self.image_size: 1 - self.grow_until}

    def size_at(self, done: float) -> int:
        """Side of the views when this share of the training is done.

        A network learns much from small images, several of which it sees in the time of a large one.

        >>> views = ViewSettings(image_size=32, start_size=20, grow_after=0.5)
        >>> [views.size_at(done) for done in (0.0, 0.49, 0.5, 1.0)]
        [20, 20, 32, 32]
        """
        until = 0.0
        for size, share in self.sizes().items():
            until += share
            if done < until:
                return size
        return self.image_size


class Augment:
    """Draws a normalised view of every image of a batch; the same generator state gives the same bytes.

    Where several processes share a batch, each draws for all of it and uses its own rows' draws: the
    views of an image do not depend on the number of processes.
    """

    def __init__(self, settings: ViewSettings, normalizer: Normalizer, world: World = ALONE) -> None:
        self.settings = settings
        self.normalizer = normalizer
        self.world = world

    def __call__(self, images: Tensor, generator: torch.Generator, size: int | None = None) -> Tensor:
        """images: (N, C, H, W) uint8 on any device, this process's rows; returns (N, C, S, S) float32 there.

        S is ``size``, or the recipe's. Random numbers are always drawn on the CPU, so that the views do not
        depend on the device.
        """
        s = self.settings
        n, channels = len(images) * self.world.size, images.shape[1]
        own = self.world.rows(n)
        matrices = crop_matrices(n, s.crop_scale, s.crop_ratio, s.flip, s.rotate, generator)[own]
        view = sample(images.float().div_(255), matrices, size or s.image_size)

        jittered = torch.rand(n, generator=generator) < s.jitter_chance
        one = torch.ones(n)
        brightness = torch.where(jittered, factors(n, s.brightness, generator), one)[own].to(images.device)
        contrast = torch.where(jittered, factors(n, s.contrast, generator), one)[own].to(images.device)
        matrix = None
        if channels == 3:
            saturation = torch.where(jittered, factors(n, s.saturation, generator), one)
            grey = torch.rand(n, generator=generator) < s.grey_chance
            saturation = saturation.masked_fill(grey, 0.0)
            hue = ((2 * torch.rand(n, generator=generator) - 1) * s.hue).masked_fill(~jittered, 0.0)
            matrix = colour_matrix(saturation[own], hue[own]).to(images.device)
        return self.normalizer(jitter(view, brightness, contrast, matrix))
