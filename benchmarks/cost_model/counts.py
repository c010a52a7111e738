"""Counts of what one view of one image, and the losses of one batch, need.

The network itself is run on torch's ``meta`` device, which knows shapes and computes nothing: counting
ResNet50 at 224 pixels takes seconds, and the numbers are the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from gradmix.attribution import Capture
from gradmix.errors import UserError
from gradmix.losses import nt_xent, nt_xent_one_way, supcon
from gradmix.methods.mixed_views import unit
from gradmix.training import Recipe
from gradmix.training.seeds import generator_for
from gradmix.training.session import build_network
from gradmix.views import Augment, Normalizer


@dataclass(frozen=True)
class NetworkCount:
    """One view of one image through a network each way, and what does not depend on the images."""

    forward: float  # FLOP; a multiplication and an addition are two
    backward: float  # about 2·forward: gradients of inputs and of weights
    maps: float  # from the embedding back to the layers of the maps, gradients of inputs only
    saved: float  # bytes kept for the way back, each storage once, without pixels and weights
    operations: int  # calls of torch's operators both ways, whatever the batch
    parameters: int
    channels: tuple[int, ...]  # of every BatchNorm
    map_channels: tuple[int, ...]  # of those that a pass for the maps goes back through
    pixels: int  # C·H·W


@dataclass(frozen=True)
class Passes:
    """What a step of method ``gradmix`` does with its network, by recipe; see ``methods/gradmix.py``."""

    views: int  # through the network once each way
    held: int  # graphs of views that exist at one time
    map_passes: int  # backwards for the maps alone
    mixed: int  # views that are mixed: so many exchanges of partners, and gathers of the patches' areas


def passes(recipe: Recipe) -> Passes:
    """Return the passes of a step.

    Plain: 2 views. ``cross``: 3, and view 1's graph is gone before the mixed view's is there.

    >>> from gradmix.training import make_recipe
    >>> passes(make_recipe({"mixer": "gradmix"}))
    Passes(views=3, held=2, map_passes=0, mixed=1)
    """
    if recipe.method != "gradmix":
        raise UserError(f"the cost model knows the steps of method gradmix, not of {recipe.method}")
    s = recipe.objective
    maps = s.mixer == "gradmix"
    if s.mixer == "none" or not s.lam:
        return Passes(2, 2, 0, 0)
    if s.pairing == "cross":
        return Passes(3, 2, int(maps and s.target != "objective"), 1)
    return Passes(4, 4, 2 * maps, 2)


def count_network(recipe: Recipe) -> NetworkCount:
    """Count with two images, then with four: the difference is what two more images need."""
    network = build_network(recipe, 2).to("meta").train()
    shape = (recipe.views.channels, recipe.views.image_size, recipe.views.image_size)

    def both_ways(n: int) -> tuple[list[float], int, tuple[int, ...]]:
        view = torch.empty(n, *shape, device="meta").contiguous(memory_format=torch.channels_last)
        kept = SavedBytes(view, *network.parameters())
        layers = Capture(network.encoder, recipe.objective.layers)
        with FlopCounterMode(display=False) as going, Touched() as there, kept, layers:
            z = network(view)
            activations = layers.activations()
        with FlopCounterMode(display=False) as looking, Touched() as aside:
            torch.autograd.grad(z, activations, torch.ones_like(z), retain_graph=True)
        with FlopCounterMode(display=False) as returning, Touched() as back:
            torch.autograd.backward(z, torch.ones_like(z))
        flops = [counter.get_total_flops() for counter in (going, returning, looking)]
        return [*flops, kept.total], there.operations + back.operations, tuple(aside.normalized)

    (two, *_), (four, operations, map_channels) = both_ways(2), both_ways(4)
    forward, backward, maps, saved = ((b - a) / 2 for a, b in zip(two, four, strict=True))
    channels = tuple(m.num_features for m in network.modules() if isinstance(m, _BatchNorm))
    parameters = sum(p.numel() for p in network.parameters())
    return NetworkCount(
        forward, backward, maps, saved, operations, parameters, channels, map_channels, math.prod(shape)
    )


@dataclass(frozen=True)
class LossCount:
    """The losses of the whole batch, which every process computes."""

    flops: float
    touched: float  # bytes read and written
    saved: float  # bytes kept for the way back at one time; with ``cross`` one graph is gone before the other


def count_losses(recipe: Recipe, batch: int) -> LossCount:
    """Count the similarities of 2B by 2B embeddings for each clean term, B by 2B for the mixed one, and back.

    FLOP = 3·2·d·(4B² per clean term + 2B² per mixed view), counted together with all that is done with them.
    """
    s, d, p = recipe.objective, recipe.model.feature_dim, passes(recipe)
    z1, z2, zm = (torch.empty(batch, d, device="meta", requires_grad=True) for _ in range(3))
    labels, weight = torch.empty(batch, dtype=torch.int64, device="meta"), torch.empty(batch, device="meta")
    clean_kept, mixed_kept = SavedBytes(), SavedBytes()
    with FlopCounterMode(display=False) as counter, Touched() as touched:
        with clean_kept:
            loss = z1.new_zeros(())
            if s.theta:
                loss = loss + supcon(unit(torch.cat([z1, z2])), labels.repeat(2), 1.0, s.supcon_denominator)
            if s.lam:
                loss = loss + nt_xent(unit(z1), unit(z2), 1.0)
        if p.map_passes and s.target == "objective":  # ``symmetric`` wants the gradient for its maps first
            torch.autograd.grad(loss, (z1, z2), retain_graph=True)
        torch.autograd.grad(loss, (z1, z2))
        for _ in range(p.mixed):
            with mixed_kept:
                pair = nt_xent_one_way(unit(zm), unit(z2), 1.0, weight)
            torch.autograd.grad(pair, (zm, z2))
    kept = (clean_kept.total, mixed_kept.total)
    together = sum(kept) if s.pairing == "symmetric" else max(kept)
    return LossCount(counter.get_total_flops(), touched.bytes, together)


def count_view(recipe: Recipe) -> float:
    """Count the bytes read and written to draw one view of one image."""

    def touched(n: int) -> int:
        images = torch.zeros(n, recipe.views.channels, *[recipe.views.image_size] * 2, dtype=torch.uint8)
        augment = Augment(recipe.views, Normalizer.fit(images))
        with Touched() as counter:
            augment(images, generator_for(0, "count"))
        return int(counter.bytes)

    return (touched(4) - touched(2)) / 2


@dataclass(frozen=True)
class StepCount:
    """All that the cost of a recipe's step depends on, except the machine and the number of processes."""

    recipe: Recipe
    passes: Passes
    network: NetworkCount
    losses: LossCount
    view: float  # bytes touched to draw one


def count_step(recipe: Recipe) -> StepCount:
    losses = count_losses(recipe, recipe.training.batch_size)
    return StepCount(recipe, passes(recipe), count_network(recipe), losses, count_view(recipe))


class SavedBytes(saved_tensors_hooks):
    """Bytes of the different storages that autograd saves in the block; those of ``free`` do not count."""

    def __init__(self, *free: Tensor) -> None:
        self.total = 0
        # Tensors are kept alive, so that no two storages share an address.
        self._seen: dict[int, Any] = {tensor.untyped_storage()._cdata: tensor for tensor in free}
        super().__init__(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen[storage._cdata] = tensor.detach()
            self.total += storage.nbytes()
        return tensor


class Touched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators called in the block, and the bytes of what they take and give; views of a tensor are free."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: int = 0
        self.bytes: int = 0
        self.normalized: list[int] = []  # channels of each BatchNorm gone back through

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.operations += 1
            if func is torch.ops.aten.native_batch_norm_backward.default:
                self.normalized.append(args[1].shape[1])
            leaves = tree_leaves((args, kwargs, result))
            self.bytes += sum(x.numel() * x.element_size() for x in leaves if isinstance(x, Tensor))
        return result
