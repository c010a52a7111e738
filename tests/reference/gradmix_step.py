"""One training step as the sum of its losses: every view through the network, maps by a backward of their
own, one backward at the end. No cached gradients, nothing shared: what the quick step must equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.methods import Views
from gradmix.methods.gradmix import GradMixSettings
from gradmix.mixing import Mixed, derangement
from gradmix.models import Network


@dataclass(frozen=True)
class NaiveStep:
    """The losses, and the maps that were used."""

    losses: dict[str, Tensor]
    maps: list[Tensor]


def naive_step(
    network: Network, settings: GradMixSettings, views: Views, generator: torch.Generator
) -> NaiveStep:
    """Leaves d(loss)/d(parameters) in ``.grad``."""
    z1, activations1 = _forward(network, settings.layers, views.v1)
    z2, activations2 = _forward(network, settings.layers, views.v2)
    parts = _clean(settings, z1, z2, views.labels)
    mixer = settings.make_mixer() if settings.lam else None
    maps: list[Tensor] = []
    if mixer is not None:
        target = {
            "objective": parts["loss"],
            "ssl": _nt_xent(_unit(z1), _unit(z2), settings.simclr_temperature),
            "similarity": (_unit(z1) * _unit(z2)).sum(),
        }[settings.target]

        def mix(view: Tensor, activations: Sequence[Tensor]) -> Mixed:
            """With a map of its own backward, if the mixer wants one."""
            own = None
            if mixer.needs_maps:
                gradients = torch.autograd.grad(target, activations, retain_graph=True)
                if settings.attribution_sign == "evidence" and settings.target != "similarity":
                    gradients = [-g for g in gradients]
                own = _layercam(activations, gradients, view)
                maps.append(own)
            partners = view[derangement(len(view), generator)]
            return mixer(view, partners, own, generator)

        tau = settings.mixed_temperature
        if settings.pairing == "cross":
            mixed = mix(views.v1, activations1)
            zm = network(mixed.images)
            pair = _one_way(_unit(zm), _unit(z2), tau, _weight(settings, mixed))
        else:
            mixed1, mixed2 = mix(views.v1, activations1), mix(views.v2, activations2)
            zm1, zm2 = network(mixed1.images), network(mixed2.images)
            one = _clean_negatives(_unit(z1), _unit(zm2), _unit(z2), tau, _weight(settings, mixed2))
            other = _clean_negatives(_unit(z2), _unit(zm1), _unit(z1), tau, _weight(settings, mixed1))
            pair = (one + other) / 2
        parts |= {"mixed": pair, "loss": parts["loss"] + settings.lam * pair}
    parts["loss"].backward()
    return NaiveStep({name: value.detach() for name, value in parts.items()}, maps)


def _forward(network: Network, layers: Sequence[str], view: Tensor) -> tuple[Tensor, list[Tensor]]:
    found: dict[str, Tensor] = {}
    handles = []
    for name in layers:
        module: nn.Module = network.encoder.get_submodule(network.encoder.layer_names[name])

        def keep(module: nn.Module, inputs: object, output: Tensor, name: str = name) -> None:
            found[name] = output

        handles.append(module.register_forward_hook(keep))
    z = network(view)
    for handle in handles:
        handle.remove()
    return z, [found[name] for name in layers]


def _clean(settings: GradMixSettings, z1: Tensor, z2: Tensor, labels: Tensor) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    loss = torch.zeros((), dtype=z1.dtype)
    if settings.theta:
        both = torch.cat([_unit(z1), _unit(z2)])
        parts["supcon"] = _supcon(
            both, torch.cat([labels, labels]), settings.supcon_temperature, settings.supcon_denominator
        )
        loss = loss + settings.theta * parts["supcon"]
    if settings.lam:
        parts["simclr"] = _nt_xent(_unit(z1), _unit(z2), settings.simclr_temperature)
        loss = loss + settings.lam * parts["simclr"]
    return {"loss": loss, **parts}


def _nt_xent(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    n = len(z1)
    both = torch.cat([z1, z2])
    kernel = torch.exp(both @ both.T / tau)
    others = kernel.sum(1) - kernel.diagonal()
    pairs = torch.cat([kernel[:n, n:].diagonal(), kernel[n:, :n].diagonal()])
    return -torch.log(pairs / others).mean()


def _one_way(mixed: Tensor, clean: Tensor, tau: float, weight: Tensor) -> Tensor:
    among, across = torch.exp(mixed @ mixed.T / tau), torch.exp(mixed @ clean.T / tau)
    others = among.sum(1) - among.diagonal() + across.sum(1)
    return (weight * -torch.log(across.diagonal() / others)).mean()


def _clean_negatives(anchor: Tensor, positive: Tensor, other: Tensor, tau: float, weight: Tensor) -> Tensor:
    among, across = torch.exp(anchor @ anchor.T / tau), torch.exp(anchor @ other.T / tau)
    negatives = among.sum(1) - among.diagonal() + across.sum(1) - across.diagonal()
    pull = torch.exp((anchor * positive).sum(1) / tau)
    return (weight * -torch.log(pull / (pull + negatives))).mean()


def _supcon(z: Tensor, labels: Tensor, tau: float, denominator: str) -> Tensor:
    """For batches in which every anchor has positives and negatives."""
    kernel = torch.exp(z @ z.T / tau)
    terms = []
    for i in range(len(z)):
        positive = labels == labels[i]
        below = kernel[i, ~positive].sum() if denominator == "negatives" else kernel[i].sum() - kernel[i, i]
        positive[i] = False
        terms.append(-torch.log(kernel[i, positive] / below).mean())
    return torch.stack(terms).mean()


def _layercam(activations: Sequence[Tensor], gradients: Sequence[Tensor], view: Tensor) -> Tensor:
    """Raw maps of all layers, upsampled and summed: (N, H, W)."""
    total = torch.zeros(len(view), *view.shape[2:])
    for a, g in zip(activations, gradients, strict=True):
        layer = (g.float().clamp(min=0) * a.detach().float()).sum(1).clamp(min=0)
        total += F.interpolate(layer[:, None], view.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return total


def _weight(settings: GradMixSettings, mixed: Mixed) -> Tensor:
    return mixed.share if settings.mix_weight == "area" else 1 - mixed.share


def _unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=1, keepdim=True)
