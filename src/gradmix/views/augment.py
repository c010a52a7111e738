"""SimCLR's augmentation and the classifiers', for a whole batch in a handful of tensor operations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, choose
from .color import color_matrix, factors, jitter
from .geometry import crop_matrices, draw_shifts, sample, shift
from .normalize import AUTO, IMAGE_NORMALIZATIONS, Normalizer
from .randaugment import RandAugment, RandAugmentDraws, check_randaugment

CROPS = ("resized", "pad")
PAD_MODES = ("zero", "reflect")
_GROWTH_STEP = 4  # pixels: few sizes, for each of which kernels are set up anew


@dataclass(frozen=True)
class ViewSettings:
    """How a training view is drawn from an image."""

    image_size: int = 32  # side of what the network sees, in pixels
    start_size: int | None = None  # side of the views at the beginning of training (None: no smaller)
    grow_after: float = 0.5  # share of the steps with views of start_size
    grow_until: float | None = None  # … after which they have full size (None: at once)
    channels: int = 3  # 1 = gray, 3 = color
    normalize: str = "data"  # data; auto: the encoder's own; imagenet, cifar, clip, tf; half; none: [0, 1]
    randaugment: tuple[int, int] = (0, 0)  # N operations per image, of magnitude M (of 30); 0, 0 is off
    randaugment_operations: str = "all"  # all 16; digits: none that turns or moves; medaf: see randaugment.py
    crop: str = "resized"  # resized: a part, enlarged; pad: all of it, shifted by up to pad pixels
    crop_scale: tuple[float, float] = (0.2, 1.0)  # share of the area that a crop keeps
    crop_ratio: tuple[float, float] = (0.75, 1.3333)  # width / height of a crop
    pad: int = 4  # of pad crops
    pad_mode: str = "zero"  # what is beyond the edge: zero (black) or reflect
    flip: bool = True  # mirror left-right half of the time; never on digits
    rotate: float = 0.0  # largest rotation, degrees
    brightness: float = 0.4  # factor in 1 ± this; likewise contrast and saturation
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1  # turn in ± this, 0.5 = opposite color
    jitter_chance: float = 0.8  # share of images that are jittered
    grey_chance: float = 0.2  # share of color images turned gray
    gain: tuple[float, float] = (1.0, 1.0)  # factor on the normalized image, drawn between these

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
        choose("normalize", self.normalize, (*IMAGE_NORMALIZATIONS, AUTO))
        choose("crop", self.crop, CROPS)
        choose("pad_mode", self.pad_mode, PAD_MODES)
        if not 0 <= self.pad < self.image_size:
            raise UserError(f"pad must lie between 0 and image_size - 1, not {self.pad}")
        if not 0 < self.gain[0] <= self.gain[1]:
            raise UserError(f"gain must satisfy 0 < low <= high, not {self.gain[0]}, {self.gain[1]}")
        check_randaugment(self.randaugment, self.randaugment_operations)
        for name in ("rotate", "brightness", "contrast", "saturation", "hue"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        for name in ("jitter_chance", "grey_chance"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

    def sizes(self) -> dict[int, float]:
        """Return the sides of the views, in the order of training, each with its share of the steps.

        >>> ViewSettings(image_size=32, start_size=20, grow_after=0.25).sizes()
        {20: 0.25, 32: 0.75}
        >>> ViewSettings(image_size=32, start_size=20, grow_after=0.25, grow_until=0.75).sizes()
        {20: 0.25, 24: 0.25, 28: 0.25, 32: 0.25}
        """
        if self.start_size is None or self.start_size == self.image_size:
            return {self.image_size: 1.0}
        between = range(self.start_size + _GROWTH_STEP, self.image_size, _GROWTH_STEP)
        if self.grow_until is None or not between:
            return {self.start_size: self.grow_after, self.image_size: 1 - self.grow_after}
        growing = dict.fromkeys(between, (self.grow_until - self.grow_after) / len(between))
        return {self.start_size: self.grow_after, **growing, self.image_size: 1 - self.grow_until}

    def size_at(self, done: float) -> int:
        """Return the side of the views when this share of the training is done.

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


@dataclass(frozen=True)
class Draws:
    """What chance decides of the views of N images; each field has one row per image."""

    crops: Tensor  # (N, 2, 3): matrices of the crop, flip and rotation; of pad crops only the rotation
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor | None = None  # of color images
    hue: Tensor | None = None
    shifts: Tensor | None = None  # (N, 3): right, down and mirrored, of pad crops
    gain: Tensor | None = None
    randaugment: RandAugmentDraws | None = None

    def __len__(self) -> int:
        return len(self.crops)

    def __getitem__(self, rows: slice) -> Draws:
        every = (getattr(self, field.name) for field in dataclasses.fields(self))
        return Draws(*(None if field is None else field[rows] for field in every))  # type: ignore[arg-type]


class Augment:
    """Draws a normalized view of every image of a batch; the same generator state gives the same bytes.

    :meth:`draw` and :meth:`apply` are two, so that the views of an image do not depend on who makes which
    rows of the batch; calling the object does both.
    """

    def __init__(self, settings: ViewSettings, normalizer: Normalizer) -> None:
        self.settings = settings
        self.normalizer = normalizer
        self.randaugment = RandAugment(*settings.randaugment, settings.randaugment_operations)

    def __call__(self, images: Tensor, generator: torch.Generator, size: int | None = None) -> Tensor:
        """Draw for these images, and apply it."""
        return self.apply(images, self.draw(len(images), generator, images.shape[1]), size)

    def draw(self, n: int, generator: torch.Generator, channels: int | None = None) -> Draws:
        """Draw for n images, on the CPU, so that the views do not depend on the device.

        ``channels`` of the images, if they are not the recipe's. RandAugment and the gain are drawn last: all
        else is what the same generator gives without them.
        """
        drawn = self._draw_crop_and_color(n, generator, channels or self.settings.channels)
        (low, high), gain, randaugment = self.settings.gain, None, None
        if (low, high) != (1, 1):
            gain = low + (high - low) * torch.rand(n, generator=generator)
        if self.randaugment.count:
            randaugment = self.randaugment.draw(n, generator)
        return dataclasses.replace(drawn, gain=gain, randaugment=randaugment)

    def _draw_crop_and_color(self, n: int, generator: torch.Generator, channels: int) -> Draws:
        s, one, shifts = self.settings, torch.ones(n), None
        if s.crop == "pad":
            shifts, crops = draw_shifts(n, s.pad, s.flip, s.rotate, generator)
        else:
            crops = crop_matrices(n, s.crop_scale, s.crop_ratio, s.flip, s.rotate, generator)
        jittered = torch.rand(n, generator=generator) < s.jitter_chance
        brightness = torch.where(jittered, factors(n, s.brightness, generator), one)
        contrast = torch.where(jittered, factors(n, s.contrast, generator), one)
        if channels == 1:
            return Draws(crops, brightness, contrast, shifts=shifts)
        saturation = torch.where(jittered, factors(n, s.saturation, generator), one)
        grey = torch.rand(n, generator=generator) < s.grey_chance
        saturation = saturation.masked_fill(grey, 0.0)
        hue = ((2 * torch.rand(n, generator=generator) - 1) * s.hue).masked_fill(~jittered, 0.0)
        return Draws(crops, brightness, contrast, saturation, hue, shifts)

    def apply(self, images: Tensor, draws: Draws, size: int | None = None) -> Tensor:
        """Return the views (N, C, S, S), float32, of images (N, C, H, W), uint8, on their device.

        S is ``size``, or the recipe's. First RandAugment, on the bytes; then crop and flip; then colors.
        """
        s, size = self.settings, size or self.settings.image_size
        if draws.randaugment is not None:
            images = self.randaugment.apply(images, draws.randaugment)
        if draws.shifts is not None:
            images = shift(images, draws.shifts, s.pad_mode)
        view = images.float().div_(255)
        if draws.shifts is None or s.rotate or tuple(view.shape[-2:]) != (size, size):
            view = sample(view, draws.crops, size)
        if draws.shifts is None or s.jitter_chance or s.grey_chance:  # else the bytes stay what they are
            view = self._jitter(view, draws)
        view = self.normalizer(view)
        return view if draws.gain is None else view * draws.gain.to(images.device)[:, None, None, None]

    @staticmethod
    def _jitter(view: Tensor, draws: Draws) -> Tensor:
        matrix = None
        if draws.saturation is not None and draws.hue is not None:
            matrix = color_matrix(draws.saturation, draws.hue).to(view.device)
        return jitter(view, draws.brightness.to(view.device), draws.contrast.to(view.device), matrix)
