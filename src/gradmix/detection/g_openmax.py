"""OpenMax for a network that has an output for the unknown, learned from made images (Ge et al. 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .extreme_value import LIBMR
from .openmax import OpenMax, distances, log_known_probability, revise
from .outputs import Outputs


class GOpenMax(OpenMax):
    """OpenMax over K + 1 outputs (f, u), u the largest dummy logit: score log(1 − P(unknown)).

    Class means and distances are of all K + 1 outputs; ranks too. What is taken from the known classes goes
    to "unknown" as in :class:`OpenMax`, and u, which is not revised, speaks for the unknown too:
    P(unknown) = (exp f̂_0 + exp u) / (exp f̂_0 + exp u + Σ_c exp f̂_c). Settings as those of :class:`OpenMax`.
    """

    name = "g-openmax"
    needs = frozenset({"logits", "dummies"})

    def __init__(
        self,
        tail: int = 20,
        alpha: int = 3,
        openmax_distance: str = "euclidean",
        shift: float | str = LIBMR,
        shift_logits: bool = True,
    ) -> None:
        super().__init__(tail, alpha, openmax_distance, shift, "openmax", shift_logits)

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in super().settings().items() if name != "variant"}

    def _read(self, outputs: Outputs) -> Tensor:
        assert outputs.logits is not None
        return torch.cat([outputs.logits, outputs.extra["dummies"].amax(dim=1, keepdim=True)], dim=1).double()

    def _revise(self, logits: Tensor, for_onnx: bool = False) -> tuple[Tensor, Tensor]:
        means, tails = self._means.to(logits.device), self._fitted().to(logits.device)
        w = tails.outlyingness(distances(logits, means, self.openmax_distance, for_onnx))
        level = logits.amin(dim=1, keepdim=True) if self.shift_logits else 0.0
        revised, removed = revise(logits, F.pad(w, (0, 1)), self.alpha, level, for_onnx)
        unknown = torch.stack([removed, logits[:, -1]], dim=1).logsumexp(dim=1)
        return revised[:, :-1], unknown

    def _score(self, revised: Tensor, unknown: Tensor) -> Tensor:
        return log_known_probability(revised, unknown)
