"""NT-Xent and its two mixed forms against loops, closed forms and their own symmetries."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gradmix.losses import nt_xent, nt_xent_clean_negatives, nt_xent_one_way
from tests.reference import losses as reference

TEMPERATURES = (0.05, 0.5)
# Every form, the number of (N, d) embeddings it takes, and its loop version.
FORMS: dict[str, tuple[Callable[..., Tensor], int, Callable[..., Tensor]]] = {
    "both ways": (nt_xent, 2, reference.nt_xent),
    "one way": (nt_xent_one_way, 2, reference.nt_xent_one_way),
    "clean negatives": (nt_xent_clean_negatives, 3, reference.nt_xent_clean_negatives),
}
every_form = pytest.mark.parametrize("form", FORMS)


def embeddings(count: int, n: int, d: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(count, n, d, generator=generator, dtype=torch.float64)
    return list(normalize(raw, dim=2))


def gradients(loss: Callable[..., Tensor], z: list[Tensor], *settings: object) -> tuple[Tensor, ...]:
    leaves = [part.clone().requires_grad_() for part in z]
    # With a single image the loop never touches the negatives: zeros, not an error.
    return torch.autograd.grad(loss(*leaves, *settings), leaves, materialize_grads=True)


@every_form
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 2), (5, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_loop_in_value_and_gradient(
    form: str, temperature: float, n: int, d: int, weighted: bool
) -> None:
    loss, count, loop = FORMS[form]
    z = embeddings(count, n, d)
    weight = torch.linspace(0.01, 0.25, n, dtype=torch.float64) if weighted else None
    torch.testing.assert_close(
        loss(*z, temperature, weight), loop(*z, temperature, weight), rtol=1e-10, atol=1e-12
    )
    mine, theirs = gradients(loss, z, temperature, weight), gradients(loop, z, temperature, weight)
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-11)


@every_form
def test_gradient_by_finite_differences(form: str) -> None:
    loss, count, _ = FORMS[form]
    z = [part.requires_grad_() for part in embeddings(count, 3, 4)]
    assert torch.autograd.gradcheck(lambda *parts: loss(*parts, 0.5), z)


@every_form
@pytest.mark.parametrize("n", [1, 2, 7])
def test_all_embeddings_equal_give_log_of_2n_minus_1(form: str, n: int) -> None:
    loss, count, _ = FORMS[form]
    z = normalize(torch.ones(n, 5, dtype=torch.float64), dim=1)
    assert loss(*[z] * count, 0.1).item() == pytest.approx(math.log(2 * n - 1), abs=1e-12)


@every_form
def test_orthogonal_pairs(form: str) -> None:
    loss, count, _ = FORMS[form]
    n, temperature = 4, 0.5
    z = torch.eye(n, dtype=torch.float64)  # each image's views coincide, different images are orthogonal
    expected = math.log(1 + (2 * n - 2) * math.exp(-1 / temperature))
    assert loss(*[z] * count, temperature).item() == pytest.approx(expected, abs=1e-12)


@every_form
def test_order_of_the_images_does_not_matter(form: str) -> None:
    loss, count, _ = FORMS[form]
    z = embeddings(count, 6, 4)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    weight = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    shuffled = loss(*(part[order] for part in z), 0.1, weight[order])
    torch.testing.assert_close(shuffled, loss(*z, 0.1, weight), rtol=1e-12, atol=0)


def test_views_can_be_exchanged_only_where_both_are_anchors() -> None:
    z1, z2 = embeddings(2, 5, 4)
    torch.testing.assert_close(nt_xent(z1, z2, 0.1), nt_xent(z2, z1, 0.1), rtol=1e-12, atol=0)
    assert not torch.isclose(nt_xent_one_way(z1, z2, 0.1), nt_xent_one_way(z2, z1, 0.1))


def test_both_ways_is_the_mean_of_the_two_one_way_losses() -> None:
    z1, z2 = embeddings(2, 5, 4)
    halves = (nt_xent_one_way(z1, z2, 0.1) + nt_xent_one_way(z2, z1, 0.1)) / 2
    torch.testing.assert_close(nt_xent(z1, z2, 0.1), halves, rtol=1e-12, atol=0)


def test_clean_negatives_with_an_unmixed_positive_is_one_way() -> None:
    z1, z2 = embeddings(2, 5, 4)
    clean = nt_xent_clean_negatives(z1, z2, z2, 0.1)
    torch.testing.assert_close(clean, nt_xent_one_way(z1, z2, 0.1), rtol=1e-12, atol=0)


@every_form
def test_constant_weight_scales_the_loss(form: str) -> None:
    loss, count, _ = FORMS[form]
    z = embeddings(count, 5, 4)
    weighted = loss(*z, 0.1, torch.full((5,), 0.09, dtype=torch.float64))
    torch.testing.assert_close(weighted, 0.09 * loss(*z, 0.1), rtol=1e-12, atol=0)


@every_form
def test_weight_of_one_image_alone_picks_its_terms(form: str) -> None:
    """The loss is linear in the weights, so single-image weights must add up to the whole."""
    loss, count, _ = FORMS[form]
    z = embeddings(count, 4, 3)
    parts = sum(loss(*z, 0.1, one) for one in torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(parts, loss(*z, 0.1), rtol=1e-12, atol=0)


@every_form
def test_a_single_image_has_nothing_to_contrast(form: str) -> None:
    loss, count, _ = FORMS[form]
    z = embeddings(count, 1, 4)
    assert loss(*z, 0.05).item() == pytest.approx(0, abs=1e-12)
    for gradient in gradients(loss, z, 0.05):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


@every_form
def test_single_precision_survives_a_tiny_temperature(form: str) -> None:
    """exp(1/0.005) overflows float32 (and float64 nearly): the log-sum-exp must not."""
    loss, count, _ = FORMS[form]
    z = embeddings(count, 5, 4)
    single = [part.float() for part in z]
    torch.testing.assert_close(loss(*single, 0.005).double(), loss(*z, 0.005), rtol=1e-4, atol=1e-4)
    assert all(g.isfinite().all() for g in gradients(loss, single, 0.005))
