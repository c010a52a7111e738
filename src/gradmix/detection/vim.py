"""What lies outside the space of the training activations: ViM and its residual alone (Wang et al. 2022,
"ViM: Out-Of-Distribution with Virtual-logit Matching")."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from .learned import LearnedDetector, chunks, second_moment
from .logits import energy
from .outputs import HeadWeights, Outputs

# A training set without any residual must not divide by zero: it counts as this part of the mean length.
_SMALLEST_RESIDUAL = 1e-6


def origin_of(head: HeadWeights) -> Tensor:
    """Return o = −W⁺ b (d,) in float64: the point nearest to 0 whose logits are nearest to 0."""
    inverse: Tensor = torch.linalg.pinv(head.weight.double())
    return -inverse @ head.bias.double()


def minor_axes(moment: Tensor, dim: int) -> Tensor:
    """Return the eigenvectors (d, d − dim) of a symmetric matrix (d, d) but for the ``dim`` leading ones."""
    axes: Tensor = torch.linalg.eigh(moment).eigenvectors  # in ascending order of the eigenvalues
    return axes[:, : max(0, len(moment) - dim)].contiguous()


def default_dim(d: int) -> int:
    """Return the size D of the principal space that is kept of d dimensions: d/2, or 512 for d ≥ 1024.

    >>> default_dim(128), default_dim(2048)
    (64, 512)
    """
    return 512 if d >= 1024 else d // 2


class Residual(LearnedDetector):
    """Minus the length of the part of h outside the principal space of the training images.

    score = −‖R(h − o)‖, o = −W⁺b, R the projection on all but the ``dim`` leading eigenvectors of
    Σ (hᵢ − o)(hᵢ − o)ᵀ; ``dim`` (None): d/2, or 512 for d ≥ 1024.
    """

    name = "residual"
    needs = frozenset({"penultimate", "logits", "head"})
    learned: ClassVar[tuple[str, ...]] = ("origin", "axes")
    origin: Tensor  # (d_h,)
    axes: Tensor  # (d_h, d_h − dim)

    def __init__(self, dim: int | None = None) -> None:
        if dim is not None and dim < 0:
            raise UserError(f"{self.name} needs dim of at least 0, not {dim}")
        self.dim = dim

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        assert train.head is not None
        h = train.penultimate
        self.origin = origin_of(train.head)
        dim = default_dim(h.shape[1]) if self.dim is None else self.dim
        self.axes = minor_axes(second_moment(h, self.origin), dim)

    def residual(self, h: Tensor) -> Tensor:
        """Return ‖R(h − o)‖ (n,) of activations (n, d_h)."""
        found: Tensor = torch.linalg.vector_norm((h.double() - self.origin) @ self.axes, dim=1)
        return found

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        return -self.residual(rows.penultimate)


class ViM(Residual):
    """Energy of the logits less a virtual logit: the residual, scaled to the size of the largest logits.

    score = logsumexp f − α‖R(h − o)‖, o and R as in :class:`Residual`, α = mean max f / mean ‖R(h − o)‖ over
    the training images; ``dim`` (None): d/2, or 512 for d ≥ 1024.
    """

    name = "vim"
    learned: ClassVar[tuple[str, ...]] = ("origin", "axes", "alpha")
    alpha: Tensor  # ()

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        super().learn_from(train, num_classes)
        assert train.penultimate is not None
        assert train.logits is not None
        residual, length = 0.0, 0.0
        for part in chunks(len(train.penultimate)):
            h = train.penultimate[part]
            residual += float(self.residual(h).sum())
            length += float(torch.linalg.vector_norm(h.double() - self.origin, dim=1).sum())
        smallest = _SMALLEST_RESIDUAL * length or 1.0
        largest = float(train.logits.double().amax(dim=1).sum())
        self.alpha = torch.tensor(largest / max(residual, smallest), dtype=torch.float64)

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        return energy(rows.logits) - self.alpha * self.residual(rows.penultimate)
