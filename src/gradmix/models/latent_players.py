"""The players around a latent space (Neal et al. 2018): what encodes images into it, and what judges images.

Both have the body of "classifier32": levels of ``depth`` 3×3 convolutions, the last of stride 2, each
followed by BatchNorm and LeakyReLU(0.2); without its dropout. The generator is
:class:`~.generators.LatentDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .generators import plan_doublings


class WholeBatchNorm(nn.Module):
    """BatchNorm by the statistics of the batch at hand, always; its gradient can be differentiated again.

    Which a gradient penalty needs, and BatchNorm over several processes cannot: whoever uses this gives it
    the whole batch.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True)


def _body(
    channels: int, image_size: int, width: int, depth: int, norm: Callable[[int], nn.Module]
) -> tuple[nn.Sequential, int]:
    """Return the convolutions, ``width`` wide in the first level and then twice, and their last width."""
    layers: list[nn.Module] = []
    _, levels = plan_doublings(image_size)
    before = channels
    for level in range(levels):
        for i in range(depth):
            last = i == depth - 1
            after = 2 * width if last or level else width
            layers += [nn.Conv2d(before, after, 3, 2 if last else 1, 1, bias=False), norm(after)]
            layers += [nn.LeakyReLU(0.2, inplace=True)]
            before = after
    return nn.Sequential(*layers), before


class LatentEncoder(nn.Module):
    """Images (N, C, S, S) to latent maps (N, latent, s, s), s the side that the decoder starts from."""

    def __init__(self, channels: int, image_size: int, latent: int, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.body, dim = _body(channels, image_size, width, depth, nn.BatchNorm2d)
        self.last = nn.Conv2d(dim, latent, 3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.last(self.body(images))
        return maps


class Critic(nn.Module):
    """A whole batch of images (N, C, S, S) to one number each (N,), high for real ones.

    exp(−mean feature of the batch) is appended to every image's features: it tells a batch of equal images.
    """

    def __init__(self, channels: int, image_size: int, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.body, dim = _body(channels, image_size, width, depth, WholeBatchNorm)
        self.last = nn.Linear(2 * dim, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images).mean((2, 3))
        batch = (-features.mean(0)).exp().expand(len(features), -1)
        judged: Tensor = self.last(torch.cat([features, batch], dim=1))[:, 0]
        return judged


def gradient_penalty(critic: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Return mean_i (‖∂ Σ_j D(x_j) / ∂x_i‖ − 1)², the norm over all pixels and channels of an image.

    >>> weights = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    >>> float(gradient_penalty(lambda x: (x * weights).sum((1, 2, 3)), torch.rand(5, 2, 1, 1)))  # (5 − 1)²
    16.0
    """
    images = images.detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(images).sum(), images, create_graph=True)
    norms = (gradient.flatten(1).square().sum(1) + 1e-12).sqrt()  # the root has no gradient at 0
    return (norms - 1).square().mean()
