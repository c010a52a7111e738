"""The recipe's part that says how known is told from unknown."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError, choose
from .normalisation import NORMALIZATIONS


@dataclass(frozen=True)
class DetectionSettings:
    """Which score, and how many known images may be rejected."""

    k: int = 3  # nearest training images a class that are summed
    score_normalize: str = "shifted"  # shifted, sum (the paper as printed), softmax, none
    knn_index: str = "exact"  # or ivf: approximate, for very many images (needs the extra faiss)
    false_reject: float = 0.05  # share of known images that may be called unknown
    holdout: float = 0.0  # share of the training images kept back to set the threshold

    def __post_init__(self) -> None:
        choose("score_normalize", self.score_normalize, NORMALIZATIONS)
        choose("knn_index", self.knn_index, ("exact", "ivf"))
        if self.k < 1:
            raise UserError(f"k must be at least 1, not {self.k}")
        if not 0 < self.false_reject < 1:
            raise UserError(f"false_reject must lie between 0 and 1, not {self.false_reject}")
        if not 0 <= self.holdout < 1:
            raise UserError(f"holdout must be at least 0 and less than 1, not {self.holdout}")
