"""The network for CPUs: shapes, the layers GradMix looks at, and gradients everywhere."""

from __future__ import annotations

import pytest
import torch

from gradmix.attribution import Capture
from gradmix.models import ENCODERS, ModelSettings, build_encoder


@pytest.mark.parametrize(("stem", "sides"), [("small", (16, 8, 4)), ("half", (8, 4, 2))])
def test_every_block_halves_the_side(stem: str, sides: tuple[int, ...]) -> None:
    encoder = build_encoder(ModelSettings("conv7_16", stem), image_size=32, channels=1)
    with Capture(encoder, ["conv2_2", "conv3_2", "conv4_2"]) as capture:
        z = encoder(torch.zeros(2, 1, 32, 32))
        shapes = [tuple(a.shape) for a in capture.activations()]
    assert z.shape == (2, 64)
    assert shapes == [(2, 16 * 2**i, side, side) for i, side in enumerate(sides)]


def test_it_has_seven_convolutions_and_each_gets_a_gradient() -> None:
    encoder = ENCODERS["conv7_16"](3, "small")
    encoder(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    convolutions = [m for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 7
    for convolution in convolutions:
        assert convolution.weight.grad is not None
        assert convolution.weight.grad.abs().max() > 0


def test_the_smallest_images_pass_through_the_smallest_stem() -> None:
    assert ENCODERS["conv7_16"](3, "half").eval()(torch.zeros(1, 3, 8, 8)).shape == (1, 64)
