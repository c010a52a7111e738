"""MoCo as He et al.'s pseudo-code has it: a list of keys as the queue, one backward of the summed loss,
maps by a backward of their own, and the momentum update after the optimiser's step. Nothing is shared
with the quick one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.methods import Views
from gradmix.methods.moco import MoCoSettings
from gradmix.mixing import derangement
from gradmix.models import Network


class NaiveMoCo:
    """``queue``: keys from the oldest to the newest."""

    def __init__(self, network: Network, settings: MoCoSettings, queue: Tensor) -> None:
        self.network, self.settings = network, settings
        self.key_network = copy.deepcopy(network)
        self.queue: list[Tensor] = list(queue.clone())
        self.maps: list[Tensor] = []

    def step(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Leaves d(loss)/d(parameters) in ``.grad``."""
        s = self.settings
        keys = _unit(self.key_network(views.v2)).detach()
        z, activations = self._forward(views.v1)
        clean = self._loss(z, keys, s.moco_temperature, torch.ones(len(z)))
        parts = {"loss": clean, "moco": clean}
        mixer = s.make_mixer()
        if mixer is not None:
            maps = None
            if mixer.needs_maps:
                gradients = torch.autograd.grad(clean, activations, retain_graph=True)
                if s.attribution_sign == "evidence":
                    gradients = [-g for g in gradients]
                maps = _layercam(activations, gradients, views.v1)
                self.maps.append(maps)
            mixed = mixer(views.v1, views.v1[derangement(len(z), generator)], maps, generator)
            weight = mixed.share if s.mix_weight == "area" else 1 - mixed.share
            pair = self._loss(self.network(mixed.images), keys, s.mixed_temperature, weight)
            parts |= {"mixed": pair, "loss": clean + pair}
        parts["loss"].backward()
        self.queue = [*self.queue, *keys][-s.queue_size :]
        return {name: value.detach() for name, value in parts.items()}

    def after_the_optimisers_step(self) -> None:
        m = self.settings.key_momentum
        trained = dict(self.network.named_parameters())
        for name, value in self.key_network.named_parameters():
            value.data = m * value.data + (1 - m) * trained[name].data

    def _loss(self, z: Tensor, keys: Tensor, tau: float, weight: Tensor) -> Tensor:
        total = z.new_zeros(())
        for q, k, w in zip(_unit(z), keys, weight, strict=True):
            pull = torch.exp(q @ k / tau)
            push = sum(torch.exp(q @ n / tau) for n in self.queue)
            total = total - w * torch.log(pull / (pull + push))
        return total / len(z)

    def _forward(self, view: Tensor) -> tuple[Tensor, list[Tensor]]:
        found: list[Tensor] = []
        encoder = self.network.encoder
        handles = [
            encoder.get_submodule(encoder.layer_names[name]).register_forward_hook(
                lambda module, inputs, output: found.append(output)
            )
            for name in self.settings.layers
        ]
        z = self.network(view)
        for handle in handles:
            handle.remove()
        return z, found


def _layercam(activations: Sequence[Tensor], gradients: Sequence[Tensor], view: Tensor) -> Tensor:
    total = torch.zeros(len(view), *view.shape[2:])
    for a, g in zip(activations, gradients, strict=True):
        layer = (g.float().clamp(min=0) * a.detach().float()).sum(1).clamp(min=0)
        total += F.interpolate(layer[:, None], view.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return total


def _unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=1, keepdim=True)
