"""MoCo v1 (He et al. 2020) with mixed queries: self-supervised, labels are not used.

    L = L_moco + w·L_moco^mixed,   L_moco: InfoNCE of query(v1) against key(v2) and a queue of earlier keys

Three networks' worth of state: the query network is trained; the key network follows it slowly
(k ← m·k + (1 − m)·q); the queue holds the keys of the last batches. Keys carry no gradient, so the two
losses share no graph: view 1 goes through the query network and back, which leaves parameter gradients
and LayerCAM's maps, then the mixed view 1 does. Each query view once each way, the key view once forward.

Decisions:

- The key network follows at the start of a step, which is "after the optimizer's last step": the same
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
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from ..losses import info_nce
from ..models import Network
from .interface import Context, Embed, Stage, Views, detach_losses
from .mixed_views import MixingMethod, MixingSettings, read_gradient, unit


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

    queue: Tensor
    pointer: Tensor  # where the oldest key is: the next to be replaced

    def __init__(self, network: Network, settings: MoCoSettings, context: Context | None = None) -> None:
        """Start with a queue of random directions from the context's generator."""
        super().__init__(network, settings, context)
        self.shuffles = self.batch_norm_is_local
        self.key_network = copy.deepcopy(network).requires_grad_(False).train()
        self.embed_key: Embed = self.embedder(self.key_network)
        # Drawn on the CPU, so that the start does not depend on the device.
        shape = (settings.queue_size, network.feature_dim)
        directions = torch.randn(shape, generator=self.context.generator)
        self.register_buffer("queue", unit(directions).to(next(network.parameters())))
        self.register_buffer("pointer", torch.tensor(0))

    def passes(self, stage: Stage) -> float:
        """Return three for the query, as many for the mixed one, and one for the key."""
        return 4.0 if self.mixer is None else 7.0

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        s, mixer = self.settings, self.mixer
        update_key_network(self.key_network, self.network, s.key_momentum)
        keys = self._keys(views.v2, generator)

        z, activations = self._embed_with_activations(views.v1, mixer)
        for activation in activations:
            activation.retain_grad()
        clean = info_nce(unit(z), keys, self.queue, s.moco_temperature)
        torch.autograd.backward(scale * clean)
        parts = {"loss": clean, "moco": clean}
        if mixer is not None:
            maps: Tensor | None = None
            if activations:
                maps = self._maps(activations, [read_gradient(a) for a in activations], views.v1, scale)
            del z, activations  # view 1's graph is done with; the mixed view may have its memory
            mixed = self._mix(views.v1, mixer, maps, generator)
            zm = self.embed(mixed.images)
            pair = info_nce(unit(zm), keys, self.queue, s.mixed_temperature, self._weight(mixed))
            torch.autograd.backward(scale * pair)
            parts |= {"loss": clean + pair, "mixed": pair}
        self._enqueue(keys)
        return detach_losses(parts)

    @torch.no_grad()
    def _keys(self, view: Tensor, generator: torch.Generator) -> Tensor:
        """Return the keys of the whole batch (N, d)."""
        if not self.shuffles:
            return unit(self.embed_key(view))
        # A generator of its own: the step's further draws are those of a run that does not shuffle.
        own = torch.Generator().manual_seed(generator.initial_seed() ^ 1)
        order = torch.randperm(self.batch_size(view), generator=own)
        shuffled = self.embed_key(self.take_rows(view, order))
        return unit(shuffled[torch.argsort(order).to(view.device)])

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys; the batch size need not divide the queue's, nor be smaller."""
        size = len(self.queue)
        newest = keys[-size:]
        slots = (self.pointer + torch.arange(len(newest), device=keys.device)) % size
        self.queue[slots] = newest
        self.pointer.copy_((self.pointer + len(newest)) % size)


@torch.no_grad()
def update_key_network(key: Network, query: Network, momentum: float) -> None:
    """Move every parameter of the key network towards the query network's.

    k ← k + (1 − m)·(q − k) for every parameter: m·k + (1 − m)·q, but exactly k where q = k.
    """
    for k, q in zip(key.parameters(), query.parameters(), strict=True):
        k.lerp_(q, 1 - momentum)
