"""Similarity to training images in features and in predictions at once: relation graphs (Kim et al. 2023,
"Neural Relation Graph") and nearest neighbours that guide the energy (Park et al. 2023, "Nearest Neighbor
Guidance for Out-of-Distribution Detection")."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from .bank import unit_rows
from .detector import Detector
from .learned import LearnedDetector, chunks, require_count
from .logits import energy
from .outputs import Outputs, clamp_to_finite

# Similarities of so many training images to so many queries are 2 MiB: still in the processor's cache when
# they are raised to a power.
_TRAIN_AT_ONCE, _QUERIES_AT_ONCE = 1024, 512


class Relation(LearnedDetector):
    """Sum over the training images of how alike they are, in features and in predictions.

    score = Σᵢ max(0, cos(h, hᵢ))^power · (p · pᵢ), p = softmax(f); ``power`` (4). In float32, summed up in
    float64. Keeps h and p of every training image; scoring holds some megabytes beside them.
    """

    name = "relation"
    learned: ClassVar[tuple[str, ...]] = ("unit", "probabilities")
    unit: Tensor  # (M, d_h) float32
    probabilities: Tensor  # (M, K) float32

    def __init__(self, power: int = 4) -> None:
        self.power = require_count(self.name, "power", power)

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        assert train.logits is not None
        self.unit = torch.empty_like(train.penultimate, dtype=torch.float32)
        for part in chunks(len(self.unit)):
            self.unit[part] = unit_rows(train.penultimate[part])
        self.probabilities = torch.softmax(train.logits.float(), dim=1)

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        return Detector.graph(self, outputs)  # refused: all training images would be in the graph

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        p = torch.softmax(rows.logits.double(), dim=1)
        found = torch.empty_like(p[:, 0])
        tile = self.unit.new_empty((min(_TRAIN_AT_ONCE, len(self.unit)), _QUERIES_AT_ONCE))
        for queries in chunks(len(p), _QUERIES_AT_ONCE):
            columns = unit_rows(rows.penultimate[queries]).T.contiguous()
            # Σᵢ sᵢ (p·pᵢ) = p · Σᵢ sᵢ pᵢ: a product of matrices instead of all p·pᵢ.
            total = p.new_zeros((p.shape[1], columns.shape[1]))
            for part in chunks(len(self.unit), _TRAIN_AT_ONCE):
                count = part.stop - part.start
                alike = tile.view(-1)[: count * columns.shape[1]].view(count, -1)
                torch.mm(self.unit[part], columns, out=alike)
                alike.clamp_(min=0)
                if self.power == 4:  # two squares take a fifth of the time of a power
                    alike.square_().square_()
                else:
                    alike.pow_(self.power)
                total += (self.probabilities[part].T @ alike).double()
            found[queries] = (p[queries] * total.T).sum(dim=1)
        return found


class NNGuide(LearnedDetector):
    """Energy, guided by the nearest of some training images, each weighted by its own energy.

    score = E(f) · mean of the ``k`` (10) largest E(fᵢ)·cos(h, hᵢ) over a bank of training images, E(f) =
    logsumexp f. The bank has ``share`` (0.01) of them, but at least ``smallest`` (1,000): evenly spaced in
    the order of the classes, so that every class is in it and nothing is drawn.
    """

    name = "nnguide"
    learned: ClassVar[tuple[str, ...]] = ("bank",)
    bank: Tensor  # (m, d_h) float32: unit activations times the energy of their image

    def __init__(self, k: int = 10, share: float = 0.01, smallest: int = 1000) -> None:
        if not 0 < share <= 1:
            raise UserError(f"nnguide needs a share above 0 and at most 1, not {share}")
        self.k, self.share = require_count(self.name, "k", k), share
        self.smallest = require_count(self.name, "smallest", smallest)

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        assert train.logits is not None
        count = len(train.labels)
        size = min(count, max(self.smallest, round(self.share * count)))
        by_class = torch.argsort(train.labels, stable=True)
        rows = by_class[torch.arange(size, device=by_class.device) * count // size]
        weight = energy(train.logits[rows]).float()
        self.bank = unit_rows(train.penultimate[rows]) * weight[:, None]

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        guidance = rows.penultimate.new_empty(len(rows.features), dtype=torch.float64)
        for queries in chunks(len(guidance), _QUERIES_AT_ONCE):
            near = self._nearest(unit_rows(rows.penultimate[queries]))
            guidance[queries] = near.double().mean(dim=1)
        return energy(rows.logits) * guidance

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        assert outputs.penultimate is not None
        assert outputs.logits is not None
        alike = unit_rows(outputs.penultimate) @ self.bank.T
        near = alike.topk(min(self.k, self.bank.shape[0]), dim=1).values
        score = energy(outputs.logits) * near.double().mean(dim=1)
        return clamp_to_finite(score), outputs.logits.argmax(dim=1)

    def _nearest(self, unit: Tensor) -> Tensor:
        """Return the k largest products (n, k) of unit queries (n, d) with the bank, in bounded memory."""
        best = unit.new_empty((len(unit), 0))
        for part in chunks(len(self.bank), _TRAIN_AT_ONCE):
            best = torch.cat([best, unit @ self.bank[part].T], dim=1)
            best = best.topk(min(self.k, best.shape[1]), dim=1).values
        return best
