"""The linear probe: how well a linear classifier does on frozen features of the encoder.

The features are the encoder's, *before* the projection, computed once without augmentation and
standardized with the training set's statistics. Two ways to fit the classifier:

fast      L2-regularized multinomial logistic regression by L-BFGS: convex, the same answer every time
standard  SGD with momentum, batches of 256, 100 epochs, cosine to 0, no regularization
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError, choose
from ..models import Network
from ..models.linear_fits import LinearClassifier, fit_logistic, fit_standardization
from ..progress import progress
from ..training.seeds import generator_for
from ..views import Normalizer


@dataclass(frozen=True)
class ProbeResult:
    """Accuracies as shares of 1; ``train_top1`` beside them tells a weak fit from weak features."""

    top1: float
    top5: float
    train_top1: float
    recipe: str
    classifier: LinearClassifier


@torch.no_grad()
def encoder_features(
    network: Network, normalizer: Normalizer, images: ImageSet, batch_size: int = 512
) -> Tensor:
    """Return the encoder's outputs (N, d) in evaluation mode, in order, on the CPU; images as in training."""
    if not len(images):
        raise UserError("no images to compute features of")
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    features = []
    with progress("features of the encoder", len(images)) as advance:
        for first in range(0, len(images), batch_size):
            batch = images.images[first : first + batch_size]
            seen = normalizer(batch.to(device)).contiguous(memory_format=torch.channels_last)
            features.append(network.encoder(seen).cpu())
            advance(len(batch))
    network.train(was_training)
    return torch.cat(features)


def linear_probe(
    train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, recipe: str = "fast", seed: int = 0
) -> ProbeResult:
    """Fit on (N, d) features and labels (N,) from 0 on, test on others; ``seed`` orders SGD's batches.

    >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> result = linear_probe(x, y, x, y)
    >>> result.top1, result.top5  # of two classes, the first two are always right
    (1.0, 1.0)
    """
    fit = PROBES[choose("probe recipe", recipe, PROBES)]
    _check(train_x, train_y, "training")
    _check(test_x, test_y, "test")
    if train_x.shape[1] != test_x.shape[1]:
        raise UserError(f"training features have {train_x.shape[1]} dimensions, test ones {test_x.shape[1]}")
    classes = int(train_y.max()) + 1
    classifier = fit(train_x, train_y, classes, seed)
    logits = classifier(test_x)
    return ProbeResult(
        top_k_accuracy(logits, test_y, 1),
        top_k_accuracy(logits, test_y, 5),
        top_k_accuracy(classifier(train_x), train_y, 1),
        recipe,
        classifier,
    )


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> float:
    """Share of images whose class is among the k largest logits (N, C); with fewer than k classes, all C.

    >>> top_k_accuracy(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), torch.tensor([1, 2]), 2)
    0.5
    """
    best = logits.topk(min(k, logits.shape[1]), dim=1).indices
    return float((best == labels[:, None]).any(1).double().mean())


def fit_sgd(
    x: Tensor, y: Tensor, classes: int, seed: int, epochs: int = 100, batch_size: int = 256, lr: float = 3.0
) -> LinearClassifier:
    """Run Nesterov SGD from zero weights, lr·½(1 + cos πt). ``lr`` is for inputs of length about 1.

    A standardized x has length √d, and the steepest curvature of the loss grows with its square: dividing
    the rate by d makes one rate right for every encoder, with no search over 0.1 … 30.
    """
    mean, std = fit_standardization(x)
    z = (x - mean) / std
    weight, bias = z.new_zeros(classes, x.shape[1]), z.new_zeros(classes)
    # The gradient of a linear softmax classifier is two lines; autograd would cost more than it does.
    speed_w, speed_b = torch.zeros_like(weight), torch.zeros_like(bias)
    momentum, steps = 0.9, epochs * math.ceil(len(z) / batch_size)
    step = 0
    with torch.no_grad(), progress("linear probe", epochs) as advance:
        for epoch in range(epochs):
            order = torch.randperm(len(z), generator=generator_for(seed, "probe", epoch)).to(z.device)
            for first in range(0, len(order), batch_size):
                index = order[first : first + batch_size]
                rate = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
                error = F.linear(z[index], weight, bias).softmax(1)
                error[torch.arange(len(index), device=z.device), y[index]] -= 1
                gradient_w, gradient_b = error.T @ z[index] / len(index), error.mean(0)
                speed_w.mul_(momentum).add_(gradient_w)
                speed_b.mul_(momentum).add_(gradient_b)
                weight.sub_(gradient_w + momentum * speed_w, alpha=rate / z.shape[1])
                bias.sub_(gradient_b + momentum * speed_b, alpha=rate)
                step += 1
            advance()
    return LinearClassifier(weight, bias, mean, std)


PROBES: dict[str, Callable[[Tensor, Tensor, int, int], LinearClassifier]] = {
    "fast": lambda x, y, classes, seed: fit_logistic(x, y, classes),
    "standard": fit_sgd,
}


def _check(x: Tensor, y: Tensor, what: str) -> None:
    if x.dim() != 2 or len(x) != len(y) or not len(x):
        raise UserError(
            f"{what} features {tuple(x.shape)} and labels {tuple(y.shape)} must be (N, d) and (N,)"
        )
    if not x.isfinite().all():
        raise UserError(f"{what} features hold NaN or infinity: the network that made them has diverged")
    if y.min() < 0:
        raise UserError(f"{what} labels hold {int(y.min())}: a probe has known classes only, numbered from 0")
