"""The recipe's part that says how known is told from unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UserError, choose
from .g_openmax import GOpenMax
from .knn import KNN, SCORE_NORMALIZATIONS
from .logits import MSP, Energy
from .mcm import MCM, NegPrompt
from .openmax import OpenMax
from .placeholder import Placeholder
from .registry import AUTO, resolve_name

_SOFTMAXES = (MSP.name, Energy.name, MCM.name, NegPrompt.name)  # scores that have a temperature


@dataclass(frozen=True)
class DetectionSettings:
    """Which score, and how many known images may be rejected."""

    detector: str = AUTO  # auto: the method's own; or knn, knn:sum, nno, msp, mls, vim, knn+mls, …
    k: int = 3  # nearest training images per class that are summed
    score_normalize: str = "shifted"  # shifted, sum (the paper as printed), softmax, none
    knn_index: str = "exact"  # or ivf: approximate, for very many images (needs the extra faiss)
    score_temperature: float | None = None  # of msp, energy, mcm, …; None: the detector's or the method's own
    openmax_tail: int = 20  # largest distances per class that are fitted
    openmax_alpha: int = 3  # largest logits that are revised
    openmax_distance: str = "euclidean"  # or cosine, eucos
    openmax_variant: str = "openmax"  # or neal: without ranks and without a logit of the unknown
    false_reject: float = 0.05  # share of known images that may be called unknown
    holdout: float = 0.0  # share of the training images kept back to set the threshold

    def __post_init__(self) -> None:
        if self.detector != AUTO:
            object.__setattr__(self, "detector", resolve_name(self.detector))  # one name per score
        choose("score_normalize", self.score_normalize, SCORE_NORMALIZATIONS)
        choose("knn_index", self.knn_index, ("exact", "ivf"))
        OpenMax(**self._openmax())  # raises for what it cannot be
        if self.score_temperature is not None and not 0 < self.score_temperature < float("inf"):
            raise UserError(f"score_temperature must be positive, not {self.score_temperature}")
        if self.k < 1:
            raise UserError(f"k must be at least 1, not {self.k}")
        if not 0 < self.false_reject < 1:
            raise UserError(f"false_reject must lie between 0 and 1, not {self.false_reject}")
        if not 0 <= self.holdout < 1:
            raise UserError(f"holdout must be at least 0 and less than 1, not {self.holdout}")

    def knn_settings(self) -> dict[str, Any]:
        """Return the settings of the index of neighbours."""
        return {"k": self.k, "normalize": self.score_normalize, "index": self.knn_index}

    def settings_of(self, name: str, temperature: float | None = None) -> dict[str, Any]:
        """Return the recipe's settings for the detector called ``name``; most have none.

        ``temperature`` is the method's own, for where the recipe names none.

        >>> DetectionSettings(k=5).settings_of("knn:sum")
        {'k': 5, 'normalize': 'sum', 'index': 'exact'}
        >>> DetectionSettings().settings_of("msp", temperature=100.0)
        {'temperature': 100.0}
        """
        kind, _, how = name.partition(":")
        if kind == KNN.name:
            return self.knn_settings() | ({"normalize": how} if how else {})
        if kind == OpenMax.name:
            return self._openmax()
        if kind == GOpenMax.name:
            return {name: value for name, value in self._openmax().items() if name != "variant"}
        if kind == Placeholder.name:  # a difference of logits, unless a temperature makes it a softmax
            return {"probability": self.score_temperature}
        if kind not in _SOFTMAXES:
            return {}
        chosen = temperature if self.score_temperature is None else self.score_temperature
        return {} if chosen is None else {"temperature": chosen}

    def _openmax(self) -> dict[str, Any]:
        return {
            "tail": self.openmax_tail,
            "alpha": self.openmax_alpha,
            "openmax_distance": self.openmax_distance,
            "variant": self.openmax_variant,
        }
