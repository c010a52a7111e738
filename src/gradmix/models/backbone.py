"""Any ``nn.Module`` as the encoder: timm's, torchvision's or one's own, by the names of its layers.

>>> module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
...                        nn.Linear(8, 1000))
>>> Backbone(module, layer="2", image_size=32).dim  # without the classifier
8
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from ..errors import UserError, choose
from .encoders import BACKBONE, ENCODERS

if TYPE_CHECKING:
    from .user_backbone import UserBackbone

__all__ = ["BACKBONE", "Backbone", "register_backbone", "registered_backbone"]


class Backbone(nn.Module):
    """Images (N, C, H, W) to features (N, dim): the output of ``layer``, averaged over positions or tokens.

    Without ``layer``: what ``forward_features`` gives (timm's models have it), else the module's own output,
    which of a classifier would be its logits: for torchvision's ResNets give layer="avgpool". With
    ``before``: what goes into ``layer``, which of a classifier's last layer are the features that it sees.
    ``layer_names`` are the layers that give feature maps, in the order in which they are passed: heat maps
    are made at the last one, and recipes name them (``layers: layer3,layer4``).
    """

    stem = "auto"  # whatever it is, it comes with the module

    def __init__(
        self,
        module: nn.Module,
        layer: str = "",
        channels: int = 3,
        image_size: int = 32,
        before: bool = False,
    ) -> None:
        super().__init__()
        if layer:
            choose("layer of the backbone", layer, [name for name, _ in module.named_modules() if name])
        self.module = module
        self.layer, self.before = layer, before
        self.kind = f"{type(module).__module__}.{type(module).__qualname__}"
        self.code: UserBackbone | None = None  # the user's file that made the module, if one did
        self.origin: Mapping[str, str] = {}  # what a model file says of that file
        self.layer_names: dict[str, str] = {}
        self.dim = self._look_at(channels, image_size)

    def extra_repr(self) -> str:
        """Return the layer: the weights do not tell it, and the key of the feature cache must."""
        return f"layer={self.layer!r}" + (", before" if self.before else "")

    def forward(self, x: Tensor) -> Tensor:
        if not self.layer:
            call = getattr(self.module, "forward_features", self.module)
            return _pool(call(x), self.kind)
        found: list[Any] = []
        part = self.module.get_submodule(self.layer)
        if self.before:
            handle = part.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
        else:
            handle = part.register_forward_hook(lambda module, inputs, output: found.append(output))
        try:
            self.module(x)
        finally:
            handle.remove()
        if not found:
            raise UserError(f"layer '{self.layer}' takes no part in the backbone's forward pass")
        return _pool(found[-1], f"layer '{self.layer}'")

    @torch.no_grad()
    def _look_at(self, channels: int, image_size: int) -> int:
        """Pass one empty image through: how many features there are, and which layers give maps."""

        def recorder(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def record(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.dim() == 4 and min(output.shape[-2:]) > 1:
                    self.layer_names[name] = f"module.{name}"

            return record

        named = [(name, part) for name, part in self.module.named_modules() if name]
        handles = [part.register_forward_hook(recorder(name)) for name, part in named]
        was_training, reference = self.module.training, next(self.module.parameters(), torch.zeros(()))
        self.module.eval()
        try:
            features = self(torch.zeros(1, channels, image_size, image_size).to(reference))
        except UserError:
            raise
        except Exception as error:  # whatever the user's own code raises
            what = " ".join(str(error).split()[:30])
            size = f"{channels} x {image_size} x {image_size}"
            raise UserError(f"the backbone {self.kind} cannot take images of {size}: {what}") from error
        finally:
            self.module.train(was_training)
            for handle in handles:
                handle.remove()
        return int(features.shape[1])


def _pool(output: Any, what: str) -> Tensor:
    """Average (N, K, h, w), (N, tokens, K) or (N, K) to (N, K)."""
    if isinstance(output, Tensor) and output.dim() == 4:
        return output.mean((2, 3))
    if isinstance(output, Tensor) and output.dim() == 3:
        return output.mean(1)
    if isinstance(output, Tensor) and output.dim() == 2:
        return output
    found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    raise UserError(f"{what} gives {found}, not one vector or feature map per image; name another layer")


@contextmanager
def register_backbone(backbone: Backbone | None) -> Iterator[None]:
    """Let recipes say ``encoder: backbone`` in the block; every network gets a copy of its own."""
    if backbone is None:
        yield
        return
    ENCODERS[BACKBONE] = cast(Any, lambda channels, stem: copy.deepcopy(backbone))
    _registered.append(backbone)
    try:
        yield
    finally:
        _registered.pop()
        del ENCODERS[BACKBONE]


def registered_backbone() -> Backbone | None:
    """Return what recipes mean by ``encoder: backbone`` now, if anything."""
    return _registered[-1] if _registered else None


_registered: list[Backbone] = []
