"""Several experts on shared first layers, and a gate that weighs them (MEDAF, Wang et al. 2024).

    maps_i = expert_i(shared(x)),   w = softmax(gate(x) / T),   features = concat_i w_i · mean(maps_i)

Expert i has its own 1×1 convolution to class maps there, M^i = W_i maps_i, whose mean over positions are its
logits f^i. The mean and the convolution are both linear, so

    Σ_i w_i f^i = Σ_i w_i W_i mean(maps_i) = [W_1 … W_E] · features:

one linear head without bias on these features gives the gated logits, and its blocks are the W_i.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..errors import UserError, choose
from .bodies import BODIES, Body, Plan
from .staged import StagedEncoder, require_stages

STEM = "stem"
GATES = ("own", "shared")
_GATE_HIDDEN = 128

_MOST_EXPERTS = 64  # a model file may ask for any number, and each is a copy of the encoder


class Experts(Body):
    """Images (N, C, H, W) to features (N, count·dim of the encoder): see the module.

    ``shared``: ``stem``, or the last layer that the experts have in common, such as conv3_2. ``gate``: own, a
    complete encoder beside the experts, or shared, two linear layers on the shared maps. All experts begin
    with the same weights, as in the released code. ``leak``: slope of the encoders' ReLUs below 0
    (:func:`make_leaky`).
    """

    def __init__(
        self,
        plan: Plan,
        count: int = 3,
        shared: str = STEM,
        gate: str = "own",
        temperature: float = 100.0,
        leak: float = 0.0,
    ) -> None:
        super().__init__()
        choose("gate", gate, GATES)
        if not 1 <= count <= _MOST_EXPERTS or not temperature > 0:
            raise UserError(
                f"experts: there must be at least 1 (at most {_MOST_EXPERTS}), at a positive temperature, "
                f"not {count} at {temperature}"
            )
        if not 0 <= leak < 1:
            raise UserError(f"experts: leak must lie in [0, 1), not {leak}")
        whole = make_leaky(require_stages(plan.make_encoder(plan.channels), "medaf"), leak)
        names = list(whole.layer_names)
        self.first = 0 if shared == STEM else names.index(choose("shared", shared, (STEM, *names))) + 1
        if self.first == len(names):
            raise UserError(f"shared: {shared} is the last layer, and leaves nothing to the experts")
        self.count, self.gate_kind, self.temperature, self.leak = count, gate, temperature, leak
        self.stem, self.expert_dim, self.dim = str(whole.stem), whole.dim, count * whole.dim
        self.shared = _keep_first(copy.deepcopy(whole), self.first)
        expert = _drop_first(whole, self.first)
        self.experts = nn.ModuleList([expert, *(copy.deepcopy(expert) for _ in range(count - 1))])
        self.gate_encoder: StagedEncoder | None = None
        if gate == "own":
            self.gate_encoder = make_leaky(plan.make_encoder(plan.channels), leak)
            width = self.gate_encoder.dim
        else:
            width = _count_maps(self.shared, plan)
        self.gate = nn.Sequential(nn.Linear(width, _GATE_HIDDEN), nn.Linear(_GATE_HIDDEN, count))
        self.weighted = nn.Identity()  # where the weighted maps of all experts can be looked at
        self.layer_names = {name: f"shared.{self.shared.layer_names[name]}" for name in names[: self.first]}
        for i in range(count):
            for name in names[self.first :]:
                self.layer_names[f"expert{i + 1}.{name}"] = f"experts.{i}.{expert.layer_names[name]}"
        self.layer_names[names[-1]] = "weighted"

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts' last maps (N, E, dim, h, w) and the weights that the gate gives them (N, E)."""
        maps = self.shared.maps(x)
        # The gate reads the shared maps as they are: what it learns changes nothing but itself.
        seen = self.shared.pool(maps.detach()) if self.gate_encoder is None else self.gate_encoder(x)
        weights = torch.softmax(self.gate(seen) / self.temperature, dim=1)
        ends = [e.run_stages(maps, self.first, len(e.layer_names)) for e in self._experts()]
        return torch.stack(ends, dim=1), weights

    def forward(self, x: Tensor) -> Tensor:
        maps, weights = self.look(x)
        weighted: Tensor = self.weighted((maps * weights[:, :, None, None, None]).flatten(1, 2))
        return weighted.mean((2, 3))

    def extra_repr(self) -> str:
        settings = f"count={self.count}, first={self.first}, gate={self.gate_kind}, T={self.temperature}"
        return f"{settings}, leak={self.leak}" if self.leak else settings

    def _experts(self) -> list[StagedEncoder]:
        return [expert for expert in self.experts if isinstance(expert, StagedEncoder)]


def make_leaky(encoder: StagedEncoder, leak: float) -> StagedEncoder:
    """Return ``encoder`` with LeakyReLU(leak) in place of every ReLU that is a module; 0 changes nothing.

    Of a residual block that is all but the one after the sum, as in MEDAF's released code.
    """
    if leak:
        for module in list(encoder.modules()):
            for name, part in module.named_children():
                if isinstance(part, nn.ReLU):
                    setattr(module, name, nn.LeakyReLU(leak, inplace=part.inplace))
    return encoder


def _keep_first(encoder: StagedEncoder, stages: int) -> StagedEncoder:
    """Return ``encoder`` without the stages after the first ``stages``."""
    _remove(encoder, [encoder.stage_parts(i) for i in range(stages, len(encoder.layer_names))])
    encoder.layer_names = dict(list(encoder.layer_names.items())[:stages])
    return encoder


def _drop_first(encoder: StagedEncoder, stages: int) -> StagedEncoder:
    """Return ``encoder`` without its stem and first ``stages`` stages, all others with their old numbers."""
    every = [encoder.stage_parts(i) for i in range(len(encoder.layer_names))]
    of_stages = {part for parts in every for part in parts}
    # What has no parameters may be in use elsewhere too: VGG32's dropout.
    trained = [
        name for name, module in encoder.named_children() if next(module.parameters(), None) is not None
    ]
    _remove(encoder, [[name for name in trained if name not in of_stages], *every[:stages]])
    return encoder


def _remove(encoder: nn.Module, parts: Iterable[Iterable[str]]) -> None:
    for names in parts:
        for name in names:
            delattr(encoder, name)


@torch.no_grad()
def _count_maps(shared: StagedEncoder, plan: Plan) -> int:
    """Return how many maps the shared stages give."""
    before = shared.training
    shared.eval()
    image = torch.zeros(1, plan.channels, plan.image_size, plan.image_size)
    maps = shared.maps(image)
    shared.train(before)
    return maps.shape[1]


BODIES["experts"] = Experts
