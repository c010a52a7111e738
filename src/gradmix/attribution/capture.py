"""Record what flows through named layers of any ``nn.Module``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from types import TracebackType

import torch
from torch import Tensor, nn

from ..errors import UserError, choose

_Hook = Callable[[nn.Module, tuple[object, ...], object], None]


def resolve_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule called ``name``: a dotted module name, or an alias that the model declares.

    A model may carry ``layer_names: dict[str, str]``, for example the paper's ``conv3_2`` for ``layer2.1``.
    """
    try:
        if name:
            return model.get_submodule(name)
    except AttributeError:
        pass
    for module in model.modules():
        aliases: dict[str, str] = getattr(module, "layer_names", {})
        if name in aliases:
            return module.get_submodule(aliases[name])
    raise _no_layer(model, name)


def _no_layer(model: nn.Module, name: str) -> UserError:
    """Return the error that names the nearest layer there is."""
    modules = [path for path, _ in model.named_modules() if path]
    aliases = [alias for module in model.modules() for alias in getattr(module, "layer_names", {})]
    # A deep model has a hundred module names: where it declares aliases, list those and what comes close.
    offered = [*aliases, *difflib.get_close_matches(name, modules)] if aliases else modules
    try:
        choose("layer", name, offered)
    except UserError as error:
        return error
    return UserError(f"no layer '{name}'")


class Capture:
    """While entered, keeps the output of each named layer from the latest forward pass.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> with Capture(model, ["1"]) as capture:
    ...     _ = model(torch.ones(1, 3, 5, 5))
    ...     [tuple(a.shape) for a in capture.activations()]
    [(1, 8, 3, 3)]

    Hooks are removed on leaving, whatever happened inside.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str]) -> None:
        if not layers:
            raise UserError("no layer given to look at; name at least one, for example conv5_2")
        self.layers = tuple(layers)
        self._modules = [resolve_layer(model, name) for name in layers]
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._outputs: list[Tensor | None] = [None] * len(layers)

    def __enter__(self) -> Capture:
        for i, module in enumerate(self._modules):
            self._handles.append(module.register_forward_hook(self._recorder(i)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._outputs = [None] * len(self._outputs)

    def _recorder(self, i: int) -> _Hook:
        def record(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
            if not isinstance(output, Tensor) or output.dim() != 4:
                what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                raise UserError(f"layer '{self.layers[i]}' gives {what}, not a feature map (N, K, h, w)")
            self._outputs[i] = output

        return record

    def activations(self) -> list[Tensor]:
        """Return the latest outputs, in the order of the layers, still attached to the graph."""
        found: list[Tensor] = []
        for name, output in zip(self.layers, self._outputs, strict=True):
            if output is None:
                raise UserError(f"layer '{name}' took no part in the forward pass")
            found.append(output)
        return found
