"""An encoder that sees an image beside its reconstruction (Perera et al. 2020).

    features = encoder(concat(x, x̂)),   x̂ = autoencoder(x)

The autoencoder knows images of the known classes only. Others it reconstructs worse, and the encoder, which
has the two side by side, can see that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from .bodies import BODIES, Body, Plan
from .staged import StagedEncoder

WIDTHS = (32, 64, 32)


class Autoencoder(nn.Module):
    """Images (N, C, H, W) to images of the same size, normalized pixels both.

    Per width one 3×3 convolution of stride 2 on the way down, and one after doubling the size on the way up;
    the last width is that of the code. The sizes on the way up are those on the way down, so that any size
    of images will do.
    """

    def __init__(self, channels: int, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise UserError(f"the autoencoder needs at least one width, each at least 1, not {list(widths)}")
        before = (channels, *widths[:-1])
        self.down = nn.ModuleList(_block(a, b, 2) for a, b in zip(before, widths, strict=True))
        up = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(_block(a, b, 1) for a, b in up)
        self.last = nn.Conv2d(widths[0], channels, 3, padding=1)  # pixels may have any value

    def forward(self, x: Tensor) -> Tensor:
        sizes = []
        for block in self.down:
            sizes.append(x.shape[2:])
            x = block(x)
        for block, size in zip((*self.up, self.last), reversed(sizes), strict=True):
            x = block(F.interpolate(x, size=(size[0], size[1]), mode="nearest"))
        return x


class Reconstruct(Body):
    """Images (N, C, H, W) to the features (N, dim) that the encoder makes of them and their reconstruction.

    The encoder has 2·C input channels. Published weights for C channels are put into both halves and halved,
    so that it begins with what they give for (x + x̂)/2.
    """

    def __init__(self, plan: Plan, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        encoder = plan.make_encoder(2 * plan.channels)
        if not isinstance(encoder, StagedEncoder):
            raise UserError(
                f"method grrosr needs an encoder of {2 * plan.channels} channels, which "
                f"{type(encoder).__name__} is not; choose one of the recipe's encoders"
            )
        self.encoder = encoder
        self.autoencoder = Autoencoder(plan.channels, widths)
        self.stem, self.dim = str(self.encoder.stem), self.encoder.dim
        self.layer_names = {name: f"encoder.{path}" for name, path in self.encoder.layer_names.items()}

    def pair(self, x: Tensor) -> Tensor:
        """Return x beside its reconstruction: (N, 2·C, H, W)."""
        return torch.cat([x, self.autoencoder(x)], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(self.pair(x))
        return features


def _block(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


BODIES["reconstruct"] = Reconstruct
