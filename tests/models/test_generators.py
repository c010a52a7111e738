"""Generators and discriminators: shapes at any size, ranges, and how their weights are drawn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradmix.models.generators import (
    Discriminator,
    LatentDecoder,
    NoiseGenerator,
    crop_center,
    draw_noise,
    plan_doublings,
    resize,
)


@pytest.mark.parametrize("size", [8, 9, 16, 20, 27, 28, 32, 33, 48, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_size(size: int, channels: int) -> None:
    start, doublings = plan_doublings(size)
    assert start * 2**doublings >= size
    made = NoiseGenerator(5, channels, size, width=16)(torch.randn(3, 5))
    assert made.shape == (3, channels, size, size)
    assert made.min() > 0
    assert made.max() < 1
    assert Discriminator(channels, size, width=16)(made).shape == (3,)
    decoder = LatentDecoder(6, channels, size, width=16)
    assert decoder(torch.randn(2, 6, decoder.start, decoder.start)).shape == (2, channels, size, size)


def channels_of(module: nn.Module, kind: type[nn.Module]) -> list[tuple[int, int]]:
    return [(m.in_channels, m.out_channels) for m in module.modules() if isinstance(m, kind)]  # type: ignore[misc]


def test_the_published_widths() -> None:
    generator, discriminator = NoiseGenerator(100, 3, 32), Discriminator(3, 32)
    assert channels_of(generator, nn.ConvTranspose2d) == [(100, 512), (512, 256), (256, 128), (128, 3)]
    assert channels_of(discriminator, nn.Conv2d) == [(3, 128), (128, 256), (256, 512), (512, 1024)]
    assert channels_of(NoiseGenerator(100, 3, 64), nn.ConvTranspose2d)[-2:] == [(128, 64), (64, 3)]
    decoder = LatentDecoder(64, 3, 32)
    assert channels_of(decoder, nn.ConvTranspose2d) == [(512, 256), (256, 128), (128, 3)]
    assert channels_of(decoder, nn.Conv2d) == [(64, 512)]
    # BatchNorm from the second convolution on, none after the last
    assert [m.num_features for m in discriminator.modules() if isinstance(m, nn.BatchNorm2d)] == [256, 512]


def test_weights_are_drawn_narrowly() -> None:
    torch.manual_seed(0)
    for module in (NoiseGenerator(100, 3, 32, 64), Discriminator(3, 32, 64)):
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                assert 0.9 < float(part.weight.detach().min()) < 1 < float(part.weight.detach().max()) < 1.1
            elif isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
                assert float(part.weight.detach().std()) == pytest.approx(0.02, rel=0.2)


def test_a_convolution_before_batch_norm_has_no_bias() -> None:
    for module in (NoiseGenerator(5, 3, 32, 16), Discriminator(3, 32, 16), LatentDecoder(5, 3, 32, 16)):
        layers = list(module.layers)
        for i, layer in enumerate(layers[:-1]):
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                assert layer.bias is None, i


def test_small_views_are_enlarged_for_the_discriminator() -> None:
    discriminator = Discriminator(3, 32, 16).eval()
    small = torch.rand(2, 3, 16, 16)
    assert torch.equal(discriminator(small), discriminator(resize(small, 32)))
    assert resize(small, 16) is small


def test_cropping_takes_the_middle() -> None:
    images = torch.arange(16.0).view(1, 1, 4, 4)
    assert crop_center(images, 2).flatten().tolist() == [5, 6, 9, 10]
    assert torch.equal(crop_center(images, 4), images)


def test_noise_is_a_function_of_the_generator_alone() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    one, two = (draw_noise(6, (2, 3), torch.Generator().manual_seed(1), like) for _ in range(2))
    assert torch.equal(one, two)
    assert one.shape == (6, 2, 3)
    assert one.dtype == torch.float64
