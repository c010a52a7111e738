"""Encoder into the latent space, critic, and the penalty on its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradmix.models.generators import LatentDecoder
from gradmix.models.latent_players import Critic, LatentEncoder, WholeBatchNorm, gradient_penalty


@pytest.mark.parametrize("size", [8, 9, 16, 20, 27, 28, 32, 33, 64])
def test_what_is_encoded_can_be_decoded_at_any_size(size: int) -> None:
    x = torch.rand(3, 1, size, size)
    decoder = LatentDecoder(5, 1, size, 16)
    z = LatentEncoder(1, size, 5, width=4, depth=1)(x)
    assert z.shape == (3, 5, decoder.start, decoder.start)
    assert decoder(z).shape == x.shape
    assert Critic(1, size, 4, 1)(x).shape == (3,)


def test_the_published_body() -> None:
    def widths(module: nn.Module) -> list[tuple[int, tuple[int, ...]]]:
        return [(m.out_channels, m.stride) for m in module.modules() if isinstance(m, nn.Conv2d)]

    body = [(64, (1, 1)), (64, (1, 1)), (128, (2, 2))] + [(128, (1, 1)), (128, (1, 1)), (128, (2, 2))] * 2
    assert widths(LatentEncoder(3, 32, 64)) == [*body, (64, (1, 1))]
    assert widths(Critic(3, 32)) == body


def test_the_norm_is_that_of_the_batch_and_can_be_differentiated_twice() -> None:
    norm, plain = WholeBatchNorm(2).double(), nn.BatchNorm2d(2).double()
    x = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(norm(x), plain(x))
    torch.testing.assert_close(norm.eval()(x), plain(x))
    assert torch.autograd.gradgradcheck(norm, (x,))


def test_the_penalty_is_of_the_whole_image() -> None:
    """Not of the channels of each pixel, and 0 where the length is 1."""
    x = torch.rand(4, 3, 2, 2, dtype=torch.float64)
    weights = torch.randn(1, 3, 2, 2, dtype=torch.float64)

    def linear(images: Tensor, scale: float = 1.0) -> Tensor:
        return (images * weights * scale).sum((1, 2, 3))

    norm = float(weights.norm())
    assert float(gradient_penalty(linear, x)) == pytest.approx((norm - 1) ** 2)
    assert float(gradient_penalty(lambda y: linear(y, 1 / norm), x)) == pytest.approx(0, abs=1e-10)
    flat = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    (at_zero,) = torch.autograd.grad(gradient_penalty(lambda y: (y * flat).sum((1, 2, 3)), x), flat)
    assert bool(at_zero.isfinite())


def test_the_penalty_of_a_critic_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    critic = Critic(1, 8, 4, 1).double()
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    norms = []
    for i in range(3):
        total = 0.0
        for j in range(64):
            step = torch.zeros_like(x)
            step[i].view(-1)[j] = 1e-6
            slope = (critic(x + step).sum() - critic(x - step).sum()) / 2e-6
            total += float(slope.detach()) ** 2
        norms.append(total**0.5)
    wanted = sum((n - 1) ** 2 for n in norms) / 3
    assert float(gradient_penalty(critic, x).detach()) == pytest.approx(wanted, rel=1e-4)


def test_the_critic_sees_how_alike_a_batch_is() -> None:
    torch.manual_seed(0)
    critic = Critic(1, 8, 4, 1)
    x = torch.rand(6, 1, 8, 8)
    features = critic.body(x).mean((2, 3))
    batch = torch.exp(-features.mean(0))
    wanted = torch.stack([critic.last(torch.cat([row, batch]))[0] for row in features])
    torch.testing.assert_close(critic(x), wanted)
