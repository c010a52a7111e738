"""How many dimensions the features really fill: TwoNN (Facco et al. 2017; Ansuini et al. 2019).

On a d-dimensional manifold sampled at a locally constant density, the ratio μ = r2/r1 of the distances to
the second and first neighbour has the law F(μ) = 1 − μ^(−d), so −log(1 − F) against log μ is a line through
the origin with slope d.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import UserError

Floats = NDArray[np.float64]

_FEWEST_POINTS = 3  # two neighbours need three points
_CANDIDATES = 4  # neighbours whose distance is recomputed without cancellation
_SMALLEST_LOG_RATIO = 1e-9  # below, r1 and r2 differ by rounding alone, as on a regular grid
_DEFAULT_CHUNK_BYTES = 64 * 2**20


def two_nn(features: ArrayLike | Tensor, discard: float = 0.1) -> float:
    """Return the intrinsic dimension of features by TwoNN.

    Intrinsic dimension of features (N, d): slope of −log(1 − i/N) on log μ_(i), fitted through 0.

    The ``discard`` share of largest ratios is left out, as the authors advise: they lie off the line.
    Copies of a point are taken once (their r1 is 0), with a warning.
    """
    points = _distinct(features)
    if not 0 <= discard < 1:
        raise UserError(f"discard must lie in [0, 1), not {discard}")
    n = len(points)
    if n < _FEWEST_POINTS:
        raise UserError(f"the intrinsic dimension needs at least {_FEWEST_POINTS} distinct images, not {n}")
    first, second = two_nearest(points / (np.abs(points).max() or 1.0))
    log_ratio = np.sort(np.log(second) - np.log(first))
    # The largest ratio has F = 1, infinitely far up the line; it can never be used.
    kept = min(max(int(n * (1 - discard)), 1), n - 1)
    x = log_ratio[:kept]
    y = -np.log1p(-np.arange(1, kept + 1) / n)
    if not bool(np.any(x > _SMALLEST_LOG_RATIO)):
        raise UserError("the intrinsic dimension is not defined: all images are as far from two others")
    return float(np.sum(x * y) / np.sum(x * x))


def intrinsic_dimension(
    features: ArrayLike | Tensor, labels: ArrayLike | Tensor, per_class: bool = True, discard: float = 0.1
) -> float:
    """Return TwoNN of each class, averaged over classes (``per_class``), or of all features at once."""
    if not per_class:
        return two_nn(features, discard)
    points, classes = np.asarray(features), np.asarray(labels)
    if len(points) != len(classes):
        raise UserError(f"{len(points)} features but {len(classes)} labels")
    if len(points) == 0:
        raise UserError("no features to estimate the intrinsic dimension of")
    estimates = []
    for c in np.unique(classes):
        try:
            estimates.append(two_nn(points[classes == c], discard))
        except UserError as error:
            raise UserError(f"class {c}: {error}; use per_class=False or leave the class out") from error
    return float(np.mean(estimates))


def two_nearest(points: Floats, chunk_bytes: int = _DEFAULT_CHUNK_BYTES) -> tuple[Floats, Floats]:
    """Return Euclidean distances (N,), (N,) from each point to its nearest and second nearest other point.

    Candidates come from ‖x‖² + ‖y‖² − 2xy in float64; their distances are then taken by subtraction, since
    that expansion loses the digits of very near neighbours.
    """
    given = torch.from_numpy(points)
    x = given - given.mean(dim=0)  # a common offset would cost digits
    squares = (x * x).sum(dim=1)
    candidates = min(_CANDIDATES, len(x) - 1)
    rows = max(1, chunk_bytes // (8 * 2 * len(x)))
    near = torch.empty((len(x), 2), dtype=torch.float64)
    for start in range(0, len(x), rows):
        part = slice(start, min(start + rows, len(x)))
        gap = torch.addmm(squares, x[part], x.T, alpha=-2)  # without ‖x‖², which is the same along a row
        gap[torch.arange(part.stop - part.start), torch.arange(part.start, part.stop)] = torch.inf
        index = gap.topk(candidates, dim=1, largest=False).indices
        exact = torch.linalg.vector_norm(given[part][:, None] - given[index], dim=2)
        near[part] = exact.topk(2, dim=1, largest=False).values.sort(dim=1).values
    near.clamp_min_(torch.finfo(torch.float64).tiny)  # distinct points, though their squares may underflow
    return near[:, 0].numpy(), near[:, 1].numpy()


def _distinct(features: ArrayLike | Tensor) -> Floats:
    points = np.asarray(features, dtype=np.float64)
    if points.ndim != 2:
        raise UserError(f"features must be (images, dimensions), not of shape {points.shape}")
    if not bool(np.isfinite(points).all()):
        raise UserError("the features contain NaN or infinity")
    unique = np.unique(points, axis=0)
    copies = len(points) - len(unique)
    if copies:
        warnings.warn(f"{copies} of {len(points)} features are copies of others and count once", stacklevel=3)
    return unique
