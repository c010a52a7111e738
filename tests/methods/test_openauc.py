"""OpenAUC: the case worked out by hand, the slow reference, and batches in which there is nothing to rank."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import OpenAUC, Views
from gradmix.methods.openauc import PAIRS, OpenAUCSettings, ranking_loss
from gradmix.mixing import draw_mix
from gradmix.models import LinearHead, Network
from gradmix.training import load_recipe
from tests.reference.openauc import ranking_term


def identity_network(weight: Tensor) -> Network:
    """A network whose embedding is the image itself, (N, d, 1, 1), and whose head is ``weight`` (K, d)."""
    classes, dim = weight.shape
    head = LinearHead(dim, classes, bias=False)
    head.weight = nn.Parameter(weight.clone())
    return Network(nn.Flatten(), dim, dim, "none", head)


def views(z: Tensor, labels: Tensor) -> Views:
    image = z[:, :, None, None]
    return Views(image, image, labels)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


KNOWN, HIT = torch.tensor([3.0, 2.0]), torch.tensor([True, False])
MIXED = torch.tensor([1.5, 4.0])


@pytest.mark.parametrize(
    ("counts", "pairs", "term"),
    [
        ((True, True), "released", 0.25),  # (1.5 − 3 + 1)²; the second image is no hit
        ((False, True), "released", 0.0),
        ((True, True), "paper", 2.125),  # the mean of 0.25 and (4 − 3 + 1)²
        ((False, True), "paper", 4.0),
        ((False, False), "paper", 0.0),
    ],
)
def test_the_case_worked_out_by_hand(counts: tuple[bool, bool], pairs: str, term: float) -> None:
    known = KNOWN.clone().requires_grad_()
    found = ranking_loss(known, HIT, MIXED, torch.tensor(counts), pairs)
    assert found.item() == term
    (gradient,) = torch.autograd.grad(found, known)
    assert bool(gradient.isfinite().all())
    assert float(gradient[1]) == 0  # no hit
    assert (float(gradient[0]) == 0) == (term == 0)


def random_case(n: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = seeded(3)
    z = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    labels = (z @ weight.T).argmax(1)
    labels[::3] = 0  # some of them wrong
    return z, weight, labels


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("n", [12, 13])  # of an odd batch the last image is in the cross-entropy only
def test_it_is_the_slow_one(pairs: str, n: int) -> None:
    z, weight, labels = random_case(n)
    method = OpenAUC(identity_network(weight).double(), OpenAUCSettings(0.7, pairs))
    found = method.step(views(z, labels), seeded())
    half, draws = n // 2, seeded()
    order, mu = torch.randperm(half, generator=draws), draw_mix(2.0, draws)
    b, of_b = z[half : 2 * half], labels[half : 2 * half]
    mixes = torch.stack([mu * b[j] + (1 - mu) * b[order[j]] for j in range(half)])
    of_two = [bool(of_b[j] != of_b[order[j]]) for j in range(half)]
    assert 0 < sum(of_two) < half
    logits = z @ weight.T
    term = ranking_term(logits[:half], labels[:half].tolist(), mixes @ weight.T, of_two, pairs == "paper")
    ce = float(F.cross_entropy(logits, labels))
    assert term > 0
    assert float(found["auc"]) == pytest.approx(term, rel=1e-9)
    assert float(found["loss"]) == pytest.approx(ce + 0.7 * term, rel=1e-9)


def test_without_weight_it_is_cross_entropy() -> None:
    z, weight, labels = random_case(12)
    method = OpenAUC(identity_network(weight).double(), OpenAUCSettings(auc_weight=0.0))
    losses = method.step(views(z, labels), seeded())
    leaf = weight.clone().requires_grad_()
    ce = F.cross_entropy(z @ leaf.T, labels)
    (wanted,) = torch.autograd.grad(ce, leaf)
    assert method.network.classifier is not None
    torch.testing.assert_close(method.network.classifier.weight.grad, wanted)
    assert float(losses["loss"]) == pytest.approx(float(ce.detach()))


@pytest.mark.parametrize("case", ["one class in the batch", "no hit"])
def test_where_there_is_nothing_to_rank_the_term_is_missing(case: str) -> None:
    z, weight, labels = random_case(12)
    labels = torch.zeros_like(labels) if case == "one class in the batch" else (z @ weight.T).argmin(1)
    method = OpenAUC(identity_network(weight).double(), OpenAUCSettings(auc_weight=5.0))
    losses = method.step(views(z, labels), seeded())
    assert float(losses["auc"]) == 0
    assert float(losses["loss"]) == float(losses["ce"])
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


def test_the_term_pushes_both_ways() -> None:
    """Known scores up, scores of mixes down: a gradient through both maxima."""
    known, mixed = KNOWN.clone().requires_grad_(), MIXED.clone().requires_grad_()
    loss = ranking_loss(known, HIT, mixed, torch.tensor([True, True]))
    of_known, of_mixed = torch.autograd.grad(loss, (known, mixed))
    assert float(of_known[0]) < 0 < float(of_mixed[1])


def test_one_class_is_refused() -> None:
    method = OpenAUC(identity_network(torch.eye(2)), OpenAUCSettings())
    images = ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("cat",))
    with pytest.raises(UserError, match=r"method openauc .* at least two classes \(here: cat\)"):
        method.check_images(images)


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/openauc-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("openauc", "none", 2350)
    printed = load_recipe("paper/openauc-cifar10").flat()
    assert (printed["epochs"], printed["mix_alpha"], printed["auc_pairs"]) == (600, 2.0, "paper")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"auc_pairs": "papr"}, "did you mean 'paper'"),
        ({"auc_weight": -1.0}, "auc_weight must not be negative"),
        ({"mix_alpha": 0.0}, "mix_alpha must be positive"),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        OpenAUCSettings(**fields)  # type: ignore[arg-type]
