"""Networks that make images, and those that tell made images from real ones.

All of them are built for images of any size: a map of 4×4 (or nearly so) is doubled until it covers the
image, and cropped to it. Convolutions before a BatchNorm have no bias: it would have no effect, and an Adam
would turn the rounding of its gradient into steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SPREAD = 0.02  # of the initial weights: N(0, 0.02²), those of BatchNorm N(1, 0.02²)


def plan_doublings(image_size: int) -> tuple[int, int]:
    """Return (side of the first map, number of doublings) that lead to an image at least as large.

    >>> plan_doublings(32), plan_doublings(28), plan_doublings(64), plan_doublings(8)
    ((4, 3), (4, 3), (4, 4), (4, 1))
    """
    doublings = max(1, round(math.log2(image_size / 4)))
    return math.ceil(image_size / 2**doublings), doublings


def crop_center(images: Tensor, size: int) -> Tensor:
    """Return the middle ``size`` × ``size`` pixels of images (N, C, H, W)."""
    top, left = (images.shape[2] - size) // 2, (images.shape[3] - size) // 2
    return images[:, :, top : top + size, left : left + size]


def draw_weights(module: nn.Module) -> None:
    """Draw the weights of all convolutions from N(0, 0.02²), and those of BatchNorm from N(1, 0.02²)."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(part.weight, 0.0, SPREAD)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight, 1.0, SPREAD)


class NoiseGenerator(nn.Module):
    """Noise (N, noise_dim) to images (N, channels, S, S) in [0, 1]: the generator of ARPL-CS.

    Transposed 4×4 convolutions from one pixel to a map of ``width`` channels, which then doubles its side and
    halves its channels (512 → 256 → 128 → image for 32 pixels); BatchNorm and ReLU between, a sigmoid last.
    """

    def __init__(self, noise_dim: int, channels: int, image_size: int, width: int = 512) -> None:
        super().__init__()
        start, doublings = plan_doublings(image_size)
        self.image_size = image_size
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise_dim, width, start, bias=False)]
        for _ in range(doublings - 1):
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            layers += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1, bias=False)]
            width //= 2
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers += [nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False)]
        self.layers = nn.Sequential(*layers)
        draw_weights(self)

    def forward(self, noise: Tensor) -> Tensor:
        images: Tensor = self.layers(noise[:, :, None, None])
        return crop_center(images, self.image_size).sigmoid()


class Discriminator(nn.Module):
    """Images (N, C, H, W) to one logit each (N,), real or made: the discriminator of ARPL-CS.

    4×4 convolutions of stride 2 (128 → 256 → 512 for 32 pixels), one of stride 1 to twice as many channels, a
    sigmoid, the mean over positions, and a linear layer; LeakyReLU(0.2), BatchNorm from the second on.
    Smaller images are enlarged first: a training may begin with small views.
    """

    def __init__(self, channels: int, image_size: int, width: int = 512) -> None:
        super().__init__()
        _, halvings = plan_doublings(image_size)
        self.image_size = image_size
        after = max(1, width >> (halvings - 1))
        layers: list[nn.Module] = [nn.Conv2d(channels, after, 4, 2, 1, bias=False)]
        for _ in range(halvings - 1):
            before, after = after, 2 * after
            layers += [nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(before, after, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(after)]
        side = image_size >> halvings
        layers += [nn.LeakyReLU(0.2, inplace=True)]
        layers += [nn.Conv2d(after, 2 * after, min(4, side), bias=False), nn.Sigmoid()]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(2 * after, 1)
        draw_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-1] < self.image_size:
            images = resize(images, self.image_size)
        logits: Tensor = self.last(self.layers(images).mean((2, 3)))[:, 0]
        return logits


class ConditionalDiscriminator(Discriminator):
    """A discriminator that is told a class code (N, K): as K more channels, each constant over the image."""

    def __init__(self, channels: int, classes: int, image_size: int, width: int = 512) -> None:
        super().__init__(channels + classes, image_size, width)

    def forward(self, images: Tensor, codes: Tensor) -> Tensor:  # type: ignore[override]
        maps = codes[:, :, None, None].expand(-1, -1, *images.shape[2:])
        return super().forward(torch.cat([images, maps], dim=1))


class LatentDecoder(nn.Module):
    """Maps (N, latent, s, s) to what an image is before a last nonlinearity: (N, channels, S, S).

    A 1×1 convolution to ``width`` channels, then transposed 4×4 convolutions that double the side and halve
    the channels, each after LeakyReLU(0.01) and BatchNorm: the generator of Neal et al. (2018).
    """

    def __init__(self, latent: int, channels: int, image_size: int, width: int = 512) -> None:
        super().__init__()
        self.start, doublings = plan_doublings(image_size)
        self.image_size = image_size
        layers: list[nn.Module] = [nn.Conv2d(latent, width, 1, bias=False)]
        for _ in range(doublings - 1):
            layers += [nn.LeakyReLU(0.01, inplace=True), nn.BatchNorm2d(width)]
            layers += [nn.ConvTranspose2d(width, max(1, width // 2), 4, 2, 1, bias=False)]
            width = max(1, width // 2)
        layers += [nn.LeakyReLU(0.01, inplace=True), nn.BatchNorm2d(width)]
        layers += [nn.ConvTranspose2d(width, channels, 4, 2, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, latent: Tensor) -> Tensor:
        return crop_center(self.layers(latent), self.image_size)


def resize(images: Tensor, size: int) -> Tensor:
    """Return images (N, C, H, W) with sides of ``size`` pixels; themselves if they have it already."""
    if images.shape[-2:] == (size, size):
        return images
    return F.interpolate(images, (size, size), mode="bilinear", align_corners=False, antialias=True)


def draw_noise(n: int, shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Draw N(0, 1) numbers (n, *shape), with the device and type of ``like``."""
    return torch.randn(n, *shape, generator=generator).to(like)
