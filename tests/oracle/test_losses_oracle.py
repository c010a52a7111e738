"""The losses against pytorch-metric-learning, gradients included."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss
from torch import Tensor
from torch.nn.functional import normalize

from gradmix.losses import nt_xent, supcon

pytestmark = pytest.mark.oracle

TEMPERATURES = (0.05, 0.1, 0.5)


def raw_embeddings(n: int, seed: int) -> Tensor:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def assert_same(mine: Tensor, theirs: Tensor, raw: Tensor) -> None:
    """Equal losses, and equal gradients through the normalisation that both apply to ``raw``."""
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    (my_gradient,) = torch.autograd.grad(mine, raw)
    (their_gradient,) = torch.autograd.grad(theirs, raw)
    torch.testing.assert_close(my_gradient, their_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("classes", [2, 5, 20])
def test_supcon_over_all_others(temperature: float, classes: int) -> None:
    raw = raw_embeddings(40, classes)
    labels = torch.randint(classes, (40,), generator=torch.Generator().manual_seed(classes))
    mine = supcon(normalize(raw, dim=1), labels, temperature, "all")
    assert_same(mine, SupConLoss(temperature=temperature)(raw, labels), raw)


def test_supcon_with_lone_samples() -> None:
    raw = raw_embeddings(9, 0)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3, 4, 4])  # 2 and 3 have no positive
    mine = supcon(normalize(raw, dim=1), labels, 0.1, "all")
    assert_same(mine, SupConLoss(temperature=0.1)(raw, labels), raw)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("n", [2, 16])
def test_nt_xent(temperature: float, n: int) -> None:
    raw = raw_embeddings(2 * n, n)
    z1, z2 = normalize(raw, dim=1).chunk(2)
    theirs = NTXentLoss(temperature=temperature)(raw, torch.arange(n).repeat(2))
    assert_same(nt_xent(z1, z2, temperature), theirs, raw)
