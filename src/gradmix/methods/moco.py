"""MoCo v1 (He et al. 2020) with mixed queries: self-supervised, labels are not used.

    L = L_moco + w·L_moco^mixed,   L_moco: InfoNCE of query(v1) against key(v2) and a queue of earlier keys

Three networks' worth of state: the query network is trained; the key network follows it slowly
(k ← m·k + (1 − m)·q); the queue holds the keys of the last batches. Keys carry no gradient, so the two
losses share no graph: view 1 goes through the query network and back, which leaves parameter gradients
and LayerCAM's maps, then the mixed view 1 does. Each query view once each way, the key view once forward.

Decisions:

- The key network follows at the start of a step, which is "after the optimiser's last step": the same
  as He et al.'s order, and a step needs no second hook. Keys enter the queue at the end of the step.
- Only parameters are averaged. The key network's BatchNorm uses the statistics of its own batch, as the
  query network's does, so its running statistics influence nothing; they are saved all the same.
- MoCo shuffles the batch *across processes* before the key network, so that BatchNorm statistics do not
  give away which key belongs to which query: with several processes and ``batch_norm: local`` so does
  this one. Where the statistics are those of the whole batch (one process, or ``batch_norm: sync``) a
  permutation changes none of them and would be undone afterwards: it does nothing, and is not done.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from ..losses import info_nce
from ..models import Network
from ..models.batch_norm import statistics_are_local
from ..world import ALONE, World
from .interface import Embed, Embedder, Views
from .mixed_views import MixingMethod, MixingSettings, detached, gradient_of, unit


@dataclass(frozen=True)
class MoCoSettings(MixingSettings):
    """The queue and the temperatures; the mixing's fields are those of :class:`MixingSettings`."""

    moco_temperature: float = 0.07  # He et al.'s; the GradMix paper prints none
    mixed_temperature: float = 0.07
    queue_size: int = 4096  # keys to tell a query's own key from
    key_momentum: float = 0.999  # m in k ← m·k + (1 − m)·q

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("moco_temperature", "mixed_temperature", "queue_size")
        if not 0 <= self.key_momentum <= 1:
            raise UserError(f"key_momentum must lie between 0 and 1, not {self.key_momentum}")


class MoCo(MixingMethod):
    """L = L_moco + w·L_moco^mixed, without labels: MoCo v1 with mixed queries; see the module.

    ``network`` is the query network, and what is kept after training.
    """

    Settings = MoCoSettings
    unit_features = True
    settings: MoCoSettings

    def __init__(
        self,
        network: Network,
        settings: MoCoSettings,
        *,
        embedder: Embedder | None = None,
        generator: torch.Generator | None = None,
        world: World = ALONE,
    ) -> None:
        """The queue starts as random directions from ``generator`` (by default that of seed 0)."""
        super().__init__(network, settings, embedder=embedder, generator=generator, world=world)
        self.shuffles = world.size > 1 and statistics_are_local(network)
        self.key_network = copy.deepcopy(network).requires_grad_(False).train()
        self.embed_key: Embed = self.embedder(self.key_network)
        # Drawn on the CPU, so that the start does not depend on the device.
        directions = torch.randn(
            settings.queue_size, network.feature_dim, generator=generator or torch.Generator().manual_seed(0)
        )
        self.queue = unit(directions).to(next(network.parameters()))
        self.pointer = 0  # where the oldest key is: the next to be replaced

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        s, mixer = self.settings, self.mixer
        follow(self.key_network, self.network, s.key_momentum)
        keys = self._keys(views.v2, generator)

        z, activations = self._embed_watched(views.v1, mixer)
        for activation in activations:
            activation.retain_grad()
        clean = info_nce(unit(self.world.union(z)), keys, self.queue, s.moco_temperature)
        torch.autograd.backward(scale * clean)
        parts = {"loss": clean, "moco": clean}
        if mixer is not None:
            maps: Tensor | None = None
            if activations:
                maps = self._maps(activations, [gradient_of(a) / scale for a in activations], views.v1)
            del z, activations  # view 1's graph is done with; the mixed view may have its memory
            mixed = self._mix(views.v1, mixer, maps, generator)
            zm = self.world.union(self.embed(mixed.images))
            pair = info_nce(unit(zm), keys, self.queue, s.mixed_temperature, self._weight(mixed))
            torch.autograd.backward(scale * pair)
            parts |= {"loss": clean + pair, "mixed": pair}
        self._enqueue(keys)
        return detached(parts)

    @torch.no_grad()
    def _keys(self, view: Tensor, generator: torch.Generator) -> Tensor:
        """The keys of the whole batch (N, d)."""
        if not self.shuffles:
            return unit(self.world.union(self.embed_key(view)))
        # A generator of its own: the step's further draws are those of a run that does not shuffle.
        own = torch.Generator().manual_seed(generator.initial_seed() ^ 1)
        order = torch.randperm(len(view) * self.world.size, generator=own)
        shuffled = self.world.union(self.embed_key(self.world.picked(view, order)))
        return unit(shuffled[torch.argsort(order).to(view.device)])

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys; the batch size need not divide the queue's, nor be smaller."""
        size = len(self.queue)
        newest = keys[-size:]
        places = (self.pointer + torch.arange(len(newest), device=keys.device)) % size
        self.queue[places] = newest
        self.pointer = (self.pointer + len(newest)) % size

    def state(self) -> dict[str, Tensor]:
        key = {f"key.{name}": value for name, value in self.key_network.state_dict().items()}
        return key | {"queue": self.queue, "pointer": torch.tensor(self.pointer)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if state["queue"].shape != self.queue.shape:
            raise ValueError(
                f"its queue is {tuple(state['queue'].shape)}, the recipe's is {tuple(self.queue.shape)}"
            )
        key = {name.removeprefix("key."): v for name, v in state.items() if name.startswith("key.")}
        self.key_network.load_state_dict(key)
        self.queue.copy_(state["queue"])
        self.pointer = int(state["pointer"])


@torch.no_grad()
def follow(key: Network, query: Network, momentum: float) -> None:
    """k ← k + (1 − m)·(q − k) for every parameter: m·k + (1 − m)·q, but exactly k where q = k."""
    for k, q in zip(key.parameters(), query.parameters(), strict=True):
        k.lerp_(q, 1 - momentum)
