"""Nearest class mean in Mahalanobis distance (NNO), after Bendale & Boult 2015 and Lee et al. 2018.

score(z) = −min_c √((z − μ_c)ᵀ Σ_c⁻¹ (z − μ_c)), label = the class of the minimum.
Σ_c is one covariance for all classes, or each class's own; either may be shrunk towards the sphere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, choose
from .detector import Detector
from .outputs import Outputs, Scores, clamp_to_finite, require_finite, require_known_labels

# Directions without any variance in training must not divide by zero, nor be ignored: a test image that
# leaves the training plane is far away. They count as this part of the mean variance.
_SMALLEST_VARIANCE = 1e-6
_ROWS_AT_A_TIME = 4096  # bounds the float64 copies of the test features


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return μ_c (C, d) of features (M, d), labels (M,), in float64; NaN for a class without images."""
    total = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    for first in range(0, len(labels), _ROWS_AT_A_TIME):
        rows = slice(first, first + _ROWS_AT_A_TIME)
        total.index_add_(0, labels[rows], features[rows].double())
    return total / torch.bincount(labels, minlength=num_classes)[:, None]


def covariance(residuals: Tensor, shrinkage: str | float) -> Tensor:
    """Return the covariance of residuals, shrunk towards the sphere.

    Σ (d, d) of residuals (M, d) that have mean zero: RᵀR/M, shrunk by s to (1 − s)·Σ + s·tr(Σ)/d·I.

    ``shrinkage``: s in [0, 1], "none" (s = 0), or "ledoit_wolf" for the s of least expected error.
    """
    if shrinkage == "ledoit_wolf" and len(residuals) > 1:
        from sklearn.covariance import ledoit_wolf  # slow to import

        # The optimal s does not depend on scale; its computation overflows if the scale is extreme.
        scale = float(residuals.abs().max()) or 1.0
        matrix, _ = ledoit_wolf((residuals / scale).cpu().numpy(), assume_centered=True)
        return torch.from_numpy(np.asarray(matrix)).to(residuals.device) * scale**2
    s = 0.0 if isinstance(shrinkage, str) else float(shrinkage)
    matrix = residuals.T @ residuals / len(residuals)
    sphere = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device) * matrix.diagonal().mean()
    return (1 - s) * matrix + s * sphere


def whitening(matrix: Tensor) -> Tensor:
    """Return the whitening matrix of a covariance.

    W (d, d) with W Wᵀ = Σ⁻¹, so that ‖(z − μ) W‖ is the Mahalanobis distance; finite for singular Σ.
    """
    variance, axes = torch.linalg.eigh(matrix)
    mean = variance.clamp_min(0).mean()
    if float(mean) == 0:  # every class is a point: plain Euclidean distance
        return torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    scaled: Tensor = axes / variance.clamp_min(_SMALLEST_VARIANCE * mean).sqrt()
    return scaled.contiguous()  # as it comes out of a file: another layout would round differently


class NNO(Detector):
    """Mahalanobis distance to the closest class mean.

    ``covariance``: "shared" (of all images around their class means) or "per_class" (a class of one image
    then borrows the shared one). ``shrinkage``: "ledoit_wolf", a number in [0, 1], or "none".
    """

    name = "nno"

    def __init__(self, covariance: str = "shared", shrinkage: str | float = "ledoit_wolf") -> None:
        self.covariance = choose("covariance", covariance, ("shared", "per_class"))
        if isinstance(shrinkage, str):
            choose("shrinkage", shrinkage, ("ledoit_wolf", "none"))
        elif not 0 <= shrinkage <= 1:
            raise UserError(f"shrinkage must lie in [0, 1], not {shrinkage}")
        self.shrinkage = shrinkage
        self._center: Tensor | None = None

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        """Compute the means and the whitening matrices of the classes that have images."""
        require_known_labels(train, num_classes)
        require_finite(train.features, "features")
        means = class_means(train.features, train.labels, num_classes)
        residuals = train.features.double() - means[train.labels]
        counts = torch.bincount(train.labels, minlength=num_classes)
        shared = whitening(covariance(residuals, self.shrinkage))
        self._num_classes = num_classes
        self._classes = counts.nonzero()[:, 0]  # (K,) those with images; the others never win
        self._means = means[self._classes]
        # Distances are taken from here: large offsets common to all features would cost digits.
        self._center = self._means.mean(dim=0)
        if self.covariance == "shared":
            self._whiten = shared[None]
        else:
            own = [
                whitening(covariance(residuals[train.labels == c], self.shrinkage))
                if counts[c] > 1
                else shared
                for c in self._classes
            ]
            self._whiten = torch.stack(own)

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        features = outputs.features
        # ‖(z − μ_c) W_c‖ written out, for ONNX has no cdist.
        means, whiten = (value.to(features.device) for value in (self._means, self._whiten))
        away = (features.double()[:, None] - means)[:, :, None] @ whiten  # (N, K, 1, d)
        distance = away.square().sum(dim=(2, 3)).sqrt()
        return -distance.amin(dim=1), self._classes.to(features.device)[distance.argmin(dim=1)]

    def settings(self) -> dict[str, Any]:
        return {"covariance": self.covariance, "shrinkage": self.shrinkage}

    def state(self) -> dict[str, Tensor]:
        self._require_fitted()
        sizes = torch.tensor([self._num_classes])
        return {"means": self._means, "whiten": self._whiten, "classes": self._classes, "num_classes": sizes}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        detector._means, detector._whiten = state["means"], state["whiten"]
        detector._classes, detector._num_classes = state["classes"], int(state["num_classes"])
        detector._center = detector._means.mean(dim=0)
        return detector

    def class_scores(self, test: Outputs) -> Tensor:
        require_finite(test.features, "features")
        found = torch.full((len(test.features), self._num_classes), -torch.inf, dtype=torch.float64)
        if len(test.features):
            found[:, self._classes] = -self.distances(test.features).cpu()
        return found

    def distances(self, features: Tensor) -> Tensor:
        """Return distances (N, K), float64, of features (N, d) to the means of the K classes with images."""
        self._require_fitted()
        assert self._center is not None
        if features.shape[1] != len(self._center):
            raise UserError(
                f"features have {features.shape[1]} dimensions, the training features {len(self._center)}; "
                "use the same network for both"
            )
        z = features.to(self._center.device).double() - self._center
        means = self._means - self._center
        if len(self._whiten) == 1:
            return torch.cdist(z @ self._whiten[0], means @ self._whiten[0])
        own = [torch.linalg.vector_norm((z - m) @ w, dim=1) for m, w in zip(means, self._whiten, strict=True)]
        return torch.stack(own, dim=1)

    def score_outputs(self, test: Outputs) -> Scores:
        """Return minus the distance to the closest mean, and its class."""
        require_finite(test.features, "features")
        parts = [self.distances(rows).min(dim=1) for rows in torch.split(test.features, _ROWS_AT_A_TIME)]
        nearest = torch.cat([part.values for part in parts])
        which = torch.cat([part.indices for part in parts])
        return Scores(clamp_to_finite(-nearest), self._classes[which])

    def _require_fitted(self) -> None:
        if self._center is None:
            raise UserError("this nno detector has seen no training images; call fit first")
