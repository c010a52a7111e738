"""SupCon with soft labels: the loop, SupCon as its limit, and labels that agree with nobody."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.losses import soft_supcon, supcon
from tests.losses.test_supcon import at_angles, embeddings
from tests.reference import losses as reference


def soft_targets(m: int, classes: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(m, classes, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("m", [2, 7])
def test_equals_the_loop_in_value_and_gradient(temperature: float, m: int) -> None:
    z, targets = embeddings(m), soft_targets(m)
    ours, slow = z.clone().requires_grad_(), z.clone().requires_grad_()
    found = soft_supcon(ours, targets, temperature)
    wanted = reference.soft_supcon(slow, targets, temperature)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    (gradient,), (expected,) = torch.autograd.grad(found, ours), torch.autograd.grad(wanted, slow)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 1, 1, 2], [3, 3, 3], [0, 1, 2]])
def test_with_hard_labels_it_is_supcon_with_the_denominator_all(labels: list[int]) -> None:
    """Also for those alone in their class, whom both leave out."""
    y, z = torch.tensor(labels), embeddings(len(labels))
    ours, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    found = soft_supcon(ours, F.one_hot(y, 4).double(), 0.1)
    wanted = supcon(plain, y, 0.1, "all")
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
    (gradient,), (expected,) = torch.autograd.grad(found, ours), torch.autograd.grad(wanted, plain)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_labels_that_agree_more_attract_more() -> None:
    """At 0, 60 and −60 degrees; the first two have one label: the first turns towards the second."""
    z = at_angles(0.0, 60.0, -60.0)
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    leaf = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(soft_supcon(leaf, targets, 1.0), leaf)
    assert float(gradient[0, 1]) < 0  # a step along −gradient turns it towards its like


def test_an_order_of_rows_makes_no_difference() -> None:
    z, targets, order = embeddings(6), soft_targets(6), torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(soft_supcon(z[order], targets[order], 0.2), soft_supcon(z, targets, 0.2))


def test_whoever_agrees_with_nobody_is_left_out() -> None:
    z = embeddings(3).requires_grad_()
    loss = soft_supcon(z, torch.eye(3, dtype=torch.float64), 0.1)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.item() == 0
    assert not bool(gradient.any())
