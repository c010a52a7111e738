"""Nearest class mean in Mahalanobis distance (NNO), after Bendale & Boult 2015 and Lee et al. 2018.

score(z) = −min_c √((z − μ_c)ᵀ Σ_c⁻¹ (z − μ_c)), label = the class of the minimum.
Σ_c is one covariance for all classes, or each class's own; either may be shrunk towards the sphere.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, choose
from .outputs import Outputs, Scores, clamp_to_finite, require_finite, require_known_labels

# Directions without any variance in training must not divide by zero, nor be ignored: a test image that
# leaves the training plane is far away. They count as this part of the mean variance.
_SMALLEST_VARIANCE = 1e-6
_ROWS_AT_A_TIME = 4096  # bounds the float64 copies of the test features


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """μ_c (C, d) of features (M, d), labels (M,), in float64; NaN for a class without images."""
    total = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    total.index_add_(0, labels, features.double())
    return total / torch.bincount(labels, minlength=num_classes)[:, None]


def covariance(residuals: Tensor, shrinkage: str | float) -> Tensor:
    """Σ (d, d) of residuals (M, d) that have mean zero: RᵀR/M, shrunk by s to (1 − s)·Σ + s·tr(Σ)/d·I.

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
    """W (d, d) with W Wᵀ = Σ⁻¹, so that ‖(z − μ) W‖ is the Mahalanobis distance; finite for singular Σ."""
    variance, axes = torch.linalg.eigh(matrix)
    mean = variance.clamp_min(0).mean()
    if float(mean) == 0:  # every class is a point: plain Euclidean distance
        return torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    scaled: Tensor = axes / variance.clamp_min(_SMALLEST_VARIANCE * mean).sqrt()
    return scaled


class NNO:
    """Mahalanobis distance to the closest class mean.

    ``covariance``: "shared" (of all images around their class means) or "per_class" (a class of one image
    then borrows the shared one). ``shrinkage``: "ledoit_wolf", a number in [0, 1], or "none".
    """

    name = "nno"
    needs_logits = False

    def __init__(self, covariance: str = "shared", shrinkage: str | float = "ledoit_wolf") -> None:
        self.covariance = choose("covariance", covariance, ("shared", "per_class"))
        if isinstance(shrinkage, str):
            choose("shrinkage", shrinkage, ("ledoit_wolf", "none"))
        elif not 0 <= shrinkage <= 1:
            raise UserError(f"shrinkage must lie in [0, 1], not {shrinkage}")
        self.shrinkage = shrinkage
        self._centre: Tensor | None = None

    def fit(self, train: Outputs, num_classes: int) -> Self:
        """Compute the means and the whitening matrices of the classes that have images."""
        require_known_labels(train, num_classes)
        require_finite(train.features, "features")
        means = class_means(train.features, train.labels, num_classes)
        residuals = train.features.double() - means[train.labels]
        counts = torch.bincount(train.labels, minlength=num_classes)
        shared = whitening(covariance(residuals, self.shrinkage))
        self._classes = counts.nonzero()[:, 0]  # (K,) those with images; the others never win
        self._means = means[self._classes]
        # Distances are taken from here: large offsets common to all features would cost digits.
        self._centre = self._means.mean(dim=0)
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
        return self

    def learned(self) -> tuple[Tensor, Tensor]:
        """μ (K, d) of the classes with images, and W (1, d, d) shared or (K, d, d), in float64."""
        if self._centre is None:
            raise UserError("this nno detector has seen no training images; call fit first")
        return self._means, self._whiten

    def distances(self, features: Tensor) -> Tensor:
        """Distance (N, K) in float64 from features (N, d) to the means of the K classes with images."""
        if self._centre is None:
            raise UserError("this nno detector has seen no training images; call fit first")
        if features.shape[1] != len(self._centre):
            raise UserError(
                f"features have {features.shape[1]} dimensions, the training features {len(self._centre)}; "
                "use the same network for both"
            )
        z = features.to(self._centre.device).double() - self._centre
        means = self._means - self._centre
        if len(self._whiten) == 1:
            return torch.cdist(z @ self._whiten[0], means @ self._whiten[0])
        own = [torch.linalg.vector_norm((z - m) @ w, dim=1) for m, w in zip(means, self._whiten, strict=True)]
        return torch.stack(own, dim=1)

    def score(self, test: Outputs) -> Scores:
        """Minus the distance to the closest mean, and its class."""
        require_finite(test.features, "features")
        parts = [self.distances(rows).min(dim=1) for rows in torch.split(test.features, _ROWS_AT_A_TIME)]
        nearest = torch.cat([part.values for part in parts])
        which = torch.cat([part.indices for part in parts])
        return Scores(clamp_to_finite(-nearest), self._classes[which])
