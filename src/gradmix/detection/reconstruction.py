"""How well the image can be drawn from its features under the assumption that it is of a known class."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .detector import FormulaDetector


def reconstruction(errors: Tensor) -> Tensor:
    """Return −min_k r_k of errors (N, K), r_k that of the image drawn as class k (C2AE, Oza & Patel 2019).

    An error of pixels grows with the contrast of the image: smooth images of unknown classes may look known.

    >>> import torch
    >>> reconstruction(torch.tensor([[0.25, 0.5]]))
    tensor([-0.2500], dtype=torch.float64)
    """
    return -errors.double().amin(dim=1)


class Reconstruction(FormulaDetector):
    """Minus the smallest error of reconstruction; the label is the classifier's, not the smallest error's."""

    name = "reconstruction"
    needs = frozenset({"logits", "errors"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return reconstruction(parts["errors"])
