"""A decoder that draws an image as if it were of a given class, and how far off each of these drawings is.

    l_k = +1 at class k, −1 elsewhere (K numbers)
    z_k = H_γ(l_k) ⊙ z + H_β(l_k),    r_k = mean |x − G(z_k)| over the pixels

z is the encoder's last map (Oza & Patel 2019, C2AE; the modulation is FiLM's, Perez et al. 2018).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .generators import LatentDecoder
from .probes import PROBES, Probe, Sizes
from .staged import require_stages

_TOGETHER = 512  # images that are drawn at once: what memory is needed does not grow with the classes


class ConditionalDecoder(Probe):
    """Images to their errors of reconstruction under each of the K classes: {"errors": (N, K)}.

    ``latent`` is the number of channels of the encoder's last map, ``width`` the decoder's. Errors are of
    images as the network sees them, normalized: the decoder has no last nonlinearity.
    """

    kind = "conditional-decoder"

    def __init__(self, sizes: Sizes, latent: int, width: int = 512) -> None:
        super().__init__()
        self.classes, self.latent, self.width = sizes.num_classes, latent, width
        self.decoder = LatentDecoder(latent, sizes.channels, sizes.image_size, width)
        numbers = latent * self.decoder.start**2
        self.gain, self.shift = nn.Linear(self.classes, numbers), nn.Linear(self.classes, numbers)
        nn.init.ones_(self.gain.bias)  # so that z itself comes through at first

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "latent": self.latent, "width": self.width}

    def encode(self, network: nn.Module, x: Tensor) -> Tensor:
        """Return the encoder's last maps of images, at the side that the decoder starts from."""
        encoder = network.encoder
        assert isinstance(encoder, nn.Module)
        maps = require_stages(encoder, "c2ae").maps(x)
        return F.adaptive_avg_pool2d(maps, self.decoder.start)

    def draw(self, maps: Tensor, classes: Tensor) -> Tensor:
        """Return the images (N, C, H, W) that maps (N, latent, s, s) are drawn as, given classes (N,)."""
        condition = 2.0 * F.one_hot(classes, self.classes).to(maps) - 1.0
        gain, shift = (layer(condition).view(maps.shape) for layer in (self.gain, self.shift))
        images: Tensor = self.decoder(gain * maps + shift)
        return images

    def forward(self, network: nn.Module, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        maps = self.encode(network, x)
        if torch.compiler.is_exporting():  # to ONNX, where the number of images is not known: class by class
            rows = torch.ones(x.shape[0], dtype=torch.int64, device=x.device)
            each_class = [self.draw(maps, k * rows) for k in range(self.classes)]
            return {"errors": torch.stack([reconstruction_errors(x, image) for image in each_class], dim=1)}
        n = len(x)
        each = max(1, _TOGETHER // n)
        errors = []
        for classes in torch.split(torch.arange(self.classes, device=x.device), each):
            k = len(classes)
            drawn = self.draw(maps.repeat(k, 1, 1, 1), classes.repeat_interleave(n))
            errors.append(reconstruction_errors(x.repeat(k, 1, 1, 1), drawn).view(k, n))
        return {"errors": torch.cat(errors).T.contiguous()}


def reconstruction_errors(x: Tensor, drawn: Tensor) -> Tensor:
    """Return mean |x − drawn| of each image: (N,).

    >>> x, drawn = torch.tensor([[[[0.0, 1.0]]]] * 2), torch.tensor([[[[0.1, 0.8]]], [[[0.5, 0.5]]]])
    >>> [round(r, 3) for r in reconstruction_errors(x, drawn).tolist()]
    [0.15, 0.5]
    """
    return (x - drawn).abs().mean((1, 2, 3))


PROBES[ConditionalDecoder.kind] = ConditionalDecoder
