"""Linear maps fitted to features in closed form or by a convex problem: the same answer every time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_CENTER = 0.75  # how far features are moved towards the mean of the class means before cosines are taken


@dataclass(frozen=True)
class LinearClassifier:
    """logits = ((x − mean) / std) Wᵀ + b; weight (C, d), bias (C,), mean and std (d,)."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    std: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear((x - self.mean) / self.std, self.weight, self.bias)

    def fold(self) -> tuple[Tensor, Tensor]:
        """Return W (C, d) and b (C,) with logits = x Wᵀ + b: the standardization is in them."""
        weight = self.weight / self.std
        return weight, self.bias - weight @ self.mean


def fit_logistic(x: Tensor, y: Tensor, classes: int, c: float = 1.0) -> LinearClassifier:
    """Minimize mean_i CE(W x_i + b, y_i) + ‖W‖² / (2·c·N) over standardized x; b is not regularized.

    This is scikit-learn's objective Σ_i CE_i + ‖W‖² / (2·c), divided by N. It is solved in float64: where the
    penalty is all that bends the objective, float32's rounding left probabilities wrong by 0.003.
    """
    mean, std = fit_standardization(x)
    z = ((x - mean) / std).double()
    weight = z.new_zeros(classes, x.shape[1]).requires_grad_()
    bias = z.new_zeros(classes).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=1000,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(z, weight, bias), y) + weight.square().sum() / (2 * c * len(z))
        torch.autograd.backward(loss)
        return loss

    with torch.enable_grad():
        optimizer.step(objective)  # type: ignore[no-untyped-call]
    return LinearClassifier(weight.detach().to(x.dtype), bias.detach().to(x.dtype), mean, std)


def fit_standardization(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of every feature; 1 for one that never varies (a dead channel)."""
    std, mean = torch.std_mean(x, dim=0, correction=0)
    return mean, torch.where(std > 1e-6 * mean.abs(), std, 1.0)


def fit_whitening(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return W (d, d) and b (d,): z = x Wᵀ + b has the same spread within classes in every direction.

    W = Σ^(−1/2), b = −¾ W m, with Σ the covariance of features (N, d) around the means of their classes y
    (N,), and m the mean of these means. Σ is estimated by Ledoit and Wolf (2004), who draw it towards a
    multiple of the identity by as much as the number of images asks for: N may be far below d. What varies
    among images of one class (light, pose, background) counts less in z than what differs between classes.

    Cosines around m compare classes best, and cosines around 0 tell best what is like no image of theirs:
    three quarters of m do both (`python benchmarks/photos.py` measures the whole).
    """
    from sklearn.covariance import ledoit_wolf_shrinkage

    x = x.double()
    classes = torch.unique(y)
    means = torch.stack([x[y == label].mean(dim=0) for label in classes])
    around = x - means[torch.searchsorted(classes, y)]
    share = float(ledoit_wolf_shrinkage(around.numpy(), assume_centered=True))
    floor = share * around.square().mean()  # the variance in directions in which no image varies
    if len(x) < x.shape[1]:  # few images vary in few directions: no need to decompose (d, d)
        lengths, vectors = torch.linalg.svd(around, full_matrices=False)[1:]
        values, vectors = lengths.square() / len(x), vectors.T
    else:
        values, vectors = torch.linalg.eigh(around.T @ around / len(x))
    values = (1 - share) * values + floor
    least = values.max().clamp(min=torch.finfo(torch.float64).tiny) * 1e-12  # where all images are one image
    rest = floor.clamp(min=least).rsqrt()
    # Any multiple does; in this one nothing grows. What the vectors do not span is scaled by ``rest``.
    weight = (vectors * (values.clamp(min=least).rsqrt() / rest - 1)) @ vectors.T + torch.eye(x.shape[1])
    return weight.float(), (-_CENTER * weight @ means.mean(dim=0)).float()
