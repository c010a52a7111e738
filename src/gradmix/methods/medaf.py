"""MEDAF, diverse experts and an attention gate (Wang et al. 2024): several views of what makes a class.

    L = w_e Σ_i CE(f^i, y) + w_g CE(Σ_i w_i f^i, y) + w_d D
    D = mean over images of Σ_{i<j} cos(a_i, a_j),   a_i = ReLU(u_i − mean u_i),   u_i = M^i_y / ‖M^i_y‖

M^i_y is expert i's map of the true class, f^i the mean of its maps, w the gate's weights; see
:mod:`gradmix.models.experts`. D makes the experts look at different places. The second term sees the experts'
logits as constants: it trains the gate alone. The released code takes the cosine of single numbers, which is
1 where both are positive and 0 elsewhere: then D has no gradient, and only the gate is more than CE.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError, choose
from ..models import Experts, LinearHead, ModelSettings, Network, NetworkSpec
from ..models.experts import GATES
from .interface import Context, Embed, Method, Stage, Views

DIVERSITIES = ("paper", "released")
ACTIVATIONS = ("paper", "released")
RELEASED_LEAK = 0.01  # of the LeakyReLUs in the released network


@dataclass(frozen=True)
class MEDAFSettings:
    """The experts, the gate, and the weights of the three terms."""

    experts: int = 3
    shared: str = "stem"  # stem, as in the released code, or the last layer in common, such as conv3_2
    gate: str = "own"  # own: a complete encoder; shared: two linear layers on the shared maps
    gate_temperature: float = 100.0
    expert_weight: float = 0.7  # of the sum over the experts' cross-entropies
    gate_weight: float = 1.0  # of the cross-entropy of the gated logits
    diversity_weight: float = 0.01
    diversity: str = "paper"  # paper: cosine between maps; released: between single numbers, no gradient
    activation: str = "paper"  # paper: the encoder's ReLUs; released: leaky ones but after the blocks' sums

    def __post_init__(self) -> None:
        choose("gate", self.gate, GATES)
        choose("diversity", self.diversity, DIVERSITIES)
        choose("activation", self.activation, ACTIVATIONS)
        if self.experts < 1:
            raise UserError(f"experts must be at least 1, not {self.experts}")
        if not self.gate_temperature > 0:
            raise UserError(f"gate_temperature must be positive, not {self.gate_temperature}")
        for name in ("expert_weight", "gate_weight", "diversity_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")


class MEDAF(Method):
    """CE of every expert and of their gated sum, and a price on looking at the same places; see above."""

    Settings = MEDAFSettings
    view_count = 1
    detector = "msp"
    score_temperature: ClassVar[float] = 100.0
    settings: MEDAFSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network of experts; the blocks of its head are their 1×1 convolutions."""
        body = {
            "kind": "experts",
            "count": settings.experts,
            "shared": settings.shared,
            "gate": settings.gate,
            "temperature": settings.gate_temperature,
        }
        if settings.activation == "released":
            body["leak"] = RELEASED_LEAK
        head = {"kind": "linear", "classes": num_classes, "bias": False}
        return replace(plain, projection="none", body=body, head=head)

    def __init__(self, network: Network, settings: MEDAFSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        assert isinstance(network.encoder, Experts)
        self.look: Embed = self.embedder(_Packed(network.encoder))

    def passes(self, stage: Stage) -> float:
        """Return three for each expert, and for a gate of its own, as if nothing were shared."""
        s = self.settings
        return 3.0 * (s.experts + (s.gate == "own"))

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, body, head = self.settings, self.network.encoder, self.network.classifier
        assert isinstance(body, Experts)
        assert isinstance(head, LinearHead)
        maps, weights = _unpack(self.look(views.v1), body)
        blocks = head.weight.view(-1, body.count, body.expert_dim)  # (K, E, d): W_i is blocks[:, i]
        logits = torch.einsum("nedp,ked->nek", maps, blocks) / maps.shape[3]
        experts = sum_of_cross_entropies(logits, views.labels)
        gated = (weights[:, :, None] * logits.detach()).sum(1)
        gate = F.cross_entropy(gated, views.labels)
        own_class = torch.einsum("nedp,ned->nep", maps, blocks[views.labels])
        diversity = compare_maps(own_class, s.diversity)
        loss = s.expert_weight * experts + s.gate_weight * gate + s.diversity_weight * diversity
        return {"loss": loss, "experts": experts, "gate": gate, "diversity": diversity}


def sum_of_cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return Σ_i CE(f^i, y), the mean over images, of logits (N, E, K)."""
    count = logits.shape[1]
    return count * F.cross_entropy(logits.flatten(0, 1), labels.repeat_interleave(count))


def compare_maps(maps: Tensor, how: str = "paper") -> Tensor:
    """Return D of the experts' maps of the true class (N, E, positions): 0 if they look at other places.

    >>> maps = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    >>> round(float(compare_maps(maps)), 4), float(compare_maps(maps, "released"))
    (1.0, 0.5)
    """
    unit = F.normalize(maps, dim=2)
    above = (unit - unit.mean(2, keepdim=True)).relu()
    pairs = list(itertools.combinations(range(maps.shape[1]), 2))
    if not pairs:
        return maps.new_zeros(())
    one, other = (above[:, [pair[i] for pair in pairs]] for i in range(2))  # (N, pairs, positions)
    if how == "released":
        return ((one > 0) & (other > 0)).to(maps.dtype).mean((0, 2)).sum()
    return F.cosine_similarity(one, other, dim=2).mean(0).sum()


class _Packed(nn.Module):
    """The experts' maps and the gate's weights as one (N, …) tensor: what is cast and gathered is one."""

    def __init__(self, body: Experts) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        maps, weights = self.body.look(x)
        return torch.cat([maps.flatten(1), weights], dim=1)


def _unpack(packed: Tensor, body: Experts) -> tuple[Tensor, Tensor]:
    """Return maps (N, E, d, positions) and weights (N, E)."""
    maps = packed[:, : -body.count].reshape(len(packed), body.count, body.expert_dim, -1)
    return maps, packed[:, -body.count :]
