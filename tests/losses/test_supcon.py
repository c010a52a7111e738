"""SupCon with both denominators: loops, hand-built angles, and batches in which terms are missing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gradmix.errors import UserError
from gradmix.losses import nt_xent, supcon
from gradmix.losses.supcon import DENOMINATORS
from tests.reference import losses as reference

LABELS = {
    "balanced": [0, 1, 2, 0, 1, 2],
    "uneven": [0, 0, 0, 0, 1, 1, 2],  # 2 is alone: no positive
    "two of one": [4, 7, 7],
    "all one class": [3, 3, 3, 3],
    "all different": [0, 1, 2, 3],
    "single": [0],
}
every_denominator = pytest.mark.parametrize("denominator", DENOMINATORS)


def embeddings(n: int, d: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(n, d, generator=generator, dtype=torch.float64), dim=1)


def at_angles(*degrees: float) -> Tensor:
    return torch.tensor(
        [[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees], dtype=torch.float64
    )


def gradient(z: Tensor, labels: Tensor, temperature: float, denominator: str) -> Tensor:
    leaf = z.clone().requires_grad_()
    (found,) = torch.autograd.grad(supcon(leaf, labels, temperature, denominator), leaf)
    return found


@every_denominator
@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("case", LABELS)
def test_equals_the_loop_in_value_and_gradient(denominator: str, temperature: float, case: str) -> None:
    labels = torch.tensor(LABELS[case])
    z = embeddings(len(labels))
    expected = reference.supcon(z, labels, temperature, denominator)
    torch.testing.assert_close(supcon(z, labels, temperature, denominator), expected, rtol=1e-10, atol=1e-12)
    leaf = z.clone().requires_grad_()
    (slow,) = torch.autograd.grad(reference.supcon(leaf, labels, temperature, denominator), leaf)
    torch.testing.assert_close(gradient(z, labels, temperature, denominator), slow, rtol=1e-8, atol=1e-11)


@every_denominator
@pytest.mark.parametrize("case", ["balanced", "uneven", "two of one"])
def test_gradient_by_finite_differences(denominator: str, case: str) -> None:
    labels = torch.tensor(LABELS[case])
    z = embeddings(len(labels)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: supcon(x, labels, 0.5, denominator), z)


def test_hand_built_angles() -> None:
    """Two classes of two, each pair 60° apart: every anchor sees a positive at cos 60° = ½ and negatives
    at cos 120° = −½ and cos 180° = −1, so all four terms are the same and can be written down."""
    z, labels, t = at_angles(0, 60, 180, 240), torch.tensor([0, 0, 1, 1]), 0.5
    negatives = math.log(math.exp(-1.0 / t) + math.exp(-1.5 / t))
    everything = math.log(1 + math.exp(-1.0 / t) + math.exp(-1.5 / t))
    assert supcon(z, labels, t, "negatives").item() == pytest.approx(negatives, abs=1e-12)
    assert supcon(z, labels, t, "all").item() == pytest.approx(everything, abs=1e-12)


def test_positives_are_averaged_outside_the_logarithm() -> None:
    """One class at 0°, 90° and 180° with one negative at 270°: sums by hand, anchor by anchor."""
    z, labels, t = at_angles(0, 90, 180, 270), torch.tensor([0, 0, 0, 1]), 1.0
    # cosines to positives: (0, −1), (0, 0), (−1, 0); to the negative: 0, −1, 0
    per_anchor = [0 - (0 - 1) / 2, -1 - 0, 0 - (-1 + 0) / 2]
    assert supcon(z, labels, t, "negatives").item() == pytest.approx(sum(per_anchor) / 3, abs=1e-12)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 0, 0, 1, 1, 2, 2, 2]])
def test_all_embeddings_equal(labels: list[int]) -> None:
    z = normalize(torch.ones(len(labels), 3, dtype=torch.float64), dim=1)
    expected = sum(math.log(sum(k != i for k in labels)) for i in labels) / len(labels)
    given = torch.tensor(labels)
    assert supcon(z, given, 0.1, "negatives").item() == pytest.approx(expected, abs=1e-12)
    assert supcon(z, given, 0.1, "all").item() == pytest.approx(math.log(len(labels) - 1), abs=1e-12)


@every_denominator
def test_order_and_names_of_the_classes_do_not_matter(denominator: str) -> None:
    labels = torch.tensor(LABELS["uneven"])
    z = embeddings(len(labels))
    order = torch.tensor([6, 2, 0, 5, 1, 4, 3])
    renamed = torch.tensor([11, -1, 5])[labels]
    expected = supcon(z, labels, 0.1, denominator)
    torch.testing.assert_close(
        supcon(z[order], labels[order], 0.1, denominator), expected, rtol=1e-12, atol=0
    )
    torch.testing.assert_close(supcon(z, renamed, 0.1, denominator), expected, rtol=1e-12, atol=0)


def test_with_two_views_an_image_a_class_it_is_nt_xent() -> None:
    z1, z2 = embeddings(5, seed=1), embeddings(5, seed=2)
    labels = torch.arange(5).repeat(2)
    loss = supcon(torch.cat([z1, z2]), labels, 0.1, "all")
    torch.testing.assert_close(loss, nt_xent(z1, z2, 0.1), rtol=1e-12, atol=0)


def test_an_anchor_without_a_positive_is_not_counted_in_the_mean() -> None:
    """A lone sample is a negative to the others but no anchor: 2 anchors are averaged, not 3."""
    z, labels = at_angles(0, 0, 90), torch.tensor([0, 0, 1])
    assert supcon(z, labels, 1.0, "negatives").item() == pytest.approx(0 - 1, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "denominator"),
    [
        ([0, 1, 2, 3], "negatives"),
        ([0, 1, 2, 3], "all"),
        ([5, 5, 5, 5], "negatives"),
        ([0], "negatives"),
        ([0], "all"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_to_learn_from_is_exactly_zero_with_a_zero_gradient(
    labels: list[int], denominator: str, dtype: torch.dtype
) -> None:
    z = embeddings(len(labels)).to(dtype)
    given = torch.tensor(labels)
    assert supcon(z, given, 0.05, denominator).item() == 0
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either, masked out or not
        found = gradient(z, given, 0.05, denominator)
    assert torch.equal(found, torch.zeros_like(z))


@every_denominator
@pytest.mark.parametrize("case", LABELS)
def test_single_precision_survives_a_tiny_temperature(denominator: str, case: str) -> None:
    labels = torch.tensor(LABELS[case])
    z = embeddings(len(labels))
    single = supcon(z.float(), labels, 0.005, denominator)
    torch.testing.assert_close(single.double(), supcon(z, labels, 0.005, denominator), rtol=1e-4, atol=1e-4)
    assert gradient(z.float(), labels, 0.005, denominator).isfinite().all()


def test_default_is_the_paper_as_printed() -> None:
    labels = torch.tensor(LABELS["balanced"])
    z = embeddings(len(labels))
    assert torch.equal(supcon(z, labels, 0.1), supcon(z, labels, 0.1, "negatives"))


def test_misspelt_denominator_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no denominator 'negative'; did you mean 'negatives'\?"):
        supcon(embeddings(2), torch.tensor([0, 0]), 0.1, "negative")
