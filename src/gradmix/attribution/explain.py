"""LayerCAM and GradCAM on any model, outside of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ..errors import UserError
from .cam import aggregate, gradcam_map, layercam_map
from .capture import Capture


class _CAM:
    """Maps of where a scalar made from the output comes from; subclasses say how a map is made."""

    _map: Callable[[Tensor, Tensor], Tensor]

    def __init__(self, model: nn.Module, layers: str | Sequence[str], normalize: str = "none") -> None:
        self.model = model
        self.layers = [layers] if isinstance(layers, str) else list(layers)
        self.normalize = normalize

    def __call__(self, images: Tensor, target: Callable[[Tensor], Tensor]) -> Tensor:
        """Return maps (N, H, W) of ∂ target(model(images)).sum() / ∂A for images (N, C, H, W).

        ``target`` takes the model's output to one value per image, for example
        ``lambda logits: logits.max(1).values``. Parameters receive no gradient.
        """
        with Capture(self.model, self.layers) as capture, torch.enable_grad():
            output = self.model(images.detach().requires_grad_())
            activations = capture.activations()
            gradients = torch.autograd.grad(target(output).sum(), activations, allow_unused=True)
        for name, gradient in zip(self.layers, gradients, strict=True):
            if gradient is None:
                raise UserError(f"the target does not depend on layer '{name}'; name one on the way to it")
        maps = [type(self)._map(a.detach(), g) for a, g in zip(activations, gradients, strict=True)]
        height, width = images.shape[-2:]
        return aggregate(maps, (height, width), self.normalize)


class LayerCAM(_CAM):
    """LayerCAM maps of any model by layer name; see :func:`layercam_map`.

    ``LayerCAM(model, layers)(images, target)``: images (N, C, H, W), and a ``target`` that takes the model's
    output to one value per image, give maps (N, H, W). Several layers are added up, after scaling each to
    [0, 1] with ``normalize="per_layer"``. The model's parameters receive no gradient.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    >>> LayerCAM(model, "1")(torch.rand(5, 3, 8, 8), lambda logits: logits.amax(1)).shape
    torch.Size([5, 8, 8])
    """

    _map = staticmethod(layercam_map)


class GradCAM(_CAM):
    """GradCAM maps of any model by layer name; see :func:`gradcam_map`. Called as :class:`LayerCAM` is."""

    _map = staticmethod(gradcam_map)
