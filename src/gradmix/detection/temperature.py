"""Temperature scaling (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError
from .detector import require_classes
from .logits import LogitDetector, msp
from .outputs import Outputs, require_finite, require_known_labels

# In units of the mean of max f − mean f. Held-out images that are all named right would push T to 0, where
# every softmax is 1.
_LOWEST, _HIGHEST = 1 / 25, 100.0
_HALVINGS = 60


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the T of least mean negative log-likelihood −log softmax(f/T)_y; logits (N, K), labels (N,).

    With β = 1/T it is convex, and its slope E[Σ_c p_c f_c − f_y] is zero there: found by halving an interval
    of log β. T lies between 1/25 and 100 times the mean of max f − mean f, so that it scales as f does.

    >>> round(fit_temperature(torch.tensor([[2.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])), 4)  # 2 / log 3
    1.8205
    """
    f = logits.double()
    f = f - f.amax(dim=1, keepdim=True)
    right = f.gather(1, labels[:, None])[:, 0]

    def slope(beta: Tensor) -> float:
        return float(((torch.softmax(beta * f, dim=1) * f).sum(dim=1) - right).mean())

    unit = -f.mean()
    if float(unit) <= 0:  # all logits are equal: so is the softmax at every T
        return 1.0
    low, high = -(_HIGHEST * unit).log(), -(_LOWEST * unit).log()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if slope(middle.exp()) > 0:
            high = middle
        else:
            low = middle
    return float((-(low + high) / 2).exp())


class Temperature(LogitDetector):
    """Largest softmax probability of f / T, T of least negative log-likelihood on held-out known images.

    score = max_c softmax(f / T)_c. Needs known images that were kept out of training (``holdout`` of the
    recipe). No settings: T is what is learned.
    """

    name = "temperature"
    uses_held_out = True
    needs_held_out = True
    _temperature: float | None = None

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        super().learn(train, num_classes)
        assert held_out is not None
        self.require(held_out)
        require_known_labels(held_out, num_classes)
        assert held_out.logits is not None
        require_classes(held_out.logits, num_classes, "logits")
        self._temperature = fit_temperature(require_finite(held_out.logits, "logits"), held_out.labels)

    @property
    def temperature(self) -> float:
        """The learned T."""
        if self._temperature is None:
            raise UserError("this temperature detector has seen no held-out images; call fit with held_out")
        return self._temperature

    def score_logits(self, logits: Tensor) -> Tensor:
        return msp(logits, self.temperature)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"temperature": torch.tensor([self.temperature], dtype=torch.float64)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = super().from_state(state, settings)
        detector._temperature = float(state["temperature"])
        return detector
