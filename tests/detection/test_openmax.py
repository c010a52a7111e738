"""OpenMax: the fits of the tails against scipy, the revised logits by hand, the whole against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from gradmix.detection import OpenMax, Outputs, energy, load_detector, make_detector
from gradmix.detection.extreme_value import Tails, fit_gumbel
from gradmix.detection.openmax import distances, log_known_probability, revise
from gradmix.errors import UserError
from tests.reference import openmax as reference

TAIL = [1.0, 1.2, 1.5, 1.9, 2.4]


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def fit(*tails: list[float], shift: float | str = "libmr") -> Tails:
    width = max(len(tail) for tail in tails)
    there = torch.tensor([[i < len(tail) for i in range(width)] for tail in tails])
    padded = [[*tail, *[777.0] * (width - len(tail))] for tail in tails]
    return Tails.fit(rows(*padded), there, shift)


def images(seed: int = 0, count: int = 240, classes: int = 4) -> Outputs:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    logits = 4 * torch.eye(classes)[labels] + 1.5 * torch.randn(count, classes, generator=generator)
    return Outputs(torch.zeros(count, 1), labels, logits)


def test_the_limit_of_libmr_by_hand() -> None:
    tails = fit(TAIL)
    assert tails.location.item() == pytest.approx(1.8595, abs=5e-5)
    assert tails.width.item() == pytest.approx(0.49275, abs=5e-6)
    w = tails.outlyingness(rows([1.0], [1.5], [2.4]))[:, 0]
    assert w.tolist() == pytest.approx([0.1604, 0.3825, 0.9500], abs=5e-5)


def test_a_shift_of_one_by_hand() -> None:
    tails = fit(TAIL, shift=1)
    assert 1 / tails.width.item() == pytest.approx(3.4892, abs=5e-5)
    assert math.exp(tails.location.item()) == pytest.approx(1.7830, abs=5e-5)
    w = tails.outlyingness(rows([1.5], [3.0], [-7.0]))[:, 0]
    assert w.tolist() == pytest.approx([0.4214, 0.9979, 0.0], abs=5e-5)


def test_the_shift_of_libmr_is_the_limit() -> None:
    limit, shifted = fit(TAIL), fit(TAIL, shift=10_000)
    d = rows([0.5], [1.0], [2.0], [3.0])
    torch.testing.assert_close(shifted.outlyingness(d), limit.outlyingness(d), rtol=0, atol=2e-4)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0, 20), min_size=3, max_size=20), st.floats(0.1, 100))
def test_the_fits_are_those_of_scipy(tail: list[float], shift: float) -> None:
    if max(tail) - min(tail) < 1e-2:  # scipy's search ends early there
        return
    m, b = fit_gumbel(rows(tail), torch.ones(1, len(tail), dtype=torch.bool))

    def loss(m: float, b: float) -> float:
        return float(-stats.gumbel_l.logpdf(tail, m, b).sum())

    assert (m.item(), b.item()) == pytest.approx(stats.gumbel_l.fit(tail), rel=1e-4, abs=1e-4)
    assert loss(m.item(), b.item()) <= loss(*stats.gumbel_l.fit(tail)) + 1e-7
    shifted = [d - min(tail) + shift for d in tail]
    shape, _, scale = stats.weibull_min.fit(shifted, floc=0)
    ours = fit(tail, shift=shift)
    theirs = -stats.weibull_min.logpdf(shifted, shape, 0, scale).sum()
    own = -stats.weibull_min.logpdf(shifted, 1 / ours.width.item(), 0, ours.location.exp().item()).sum()
    assert own <= theirs + 1e-6 * abs(theirs) + 1e-6


def test_each_class_is_fitted_by_itself() -> None:
    both = fit(TAIL, [5.0, 6.0, 9.0])
    for c, tail in enumerate((TAIL, [5.0, 6.0, 9.0])):
        alone = fit(tail)
        torch.testing.assert_close(both.location[c], alone.location[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(both.width[c], alone.width[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shift", ["libmr", 1.0])
@pytest.mark.parametrize("value", [0.0, 3.0, 1e30])
def test_equal_distances_make_a_step(value: float, shift: float | str) -> None:
    tails = fit([value] * 5, shift=shift)
    below, above = value * (1 - 1e-6), value * (1 + 1e-6) + 1e-6
    w = tails.outlyingness(rows([below], [above]))[:, 0]
    assert w.isfinite().all()
    assert w[1] == 1.0 or (value == 1e30 and shift == 1.0)
    assert value == 0.0 or w[0] < 1e-6


def test_the_revised_logits_by_hand() -> None:
    f, w = rows([4.0, 2.0, 1.0]), rows([0.5, 0.2, 0.9])
    revised, unknown = revise(f, w, alpha=2)
    torch.testing.assert_close(revised, rows([2.0, 1.8, 1.0]))
    assert unknown.item() == pytest.approx(2.2)
    assert 1 - log_known_probability(revised, unknown).exp().item() == pytest.approx(0.3584, abs=5e-5)
    # Another order of the classes, and an alpha larger than their number.
    turned, same = revise(f.flip(1), w.flip(1), alpha=2)
    torch.testing.assert_close(turned.flip(1), revised)
    torch.testing.assert_close(same, unknown)
    most, all_of_them = revise(f, w, alpha=9), revise(f, w, alpha=3)
    assert torch.equal(most[0], all_of_them[0])
    # Neal's: all of them, in full.
    torch.testing.assert_close(revise(f, w, None)[0], rows([2.0, 1.6, 0.1]))


def test_towards_the_smallest_logit_nothing_is_raised() -> None:
    f, w = rows([1.0, -3.0, -5.0]), rows([1.0, 1.0, 1.0])
    assert revise(f, w, alpha=3)[0][0, 1] > f[0, 1]  # as printed
    revised, unknown = revise(f, w, 3, f.amin(dim=1, keepdim=True))
    assert (revised <= f).all()
    torch.testing.assert_close(revised, rows([-5.0, -3.0 - 2 / 3 * 2, -5.0]))
    assert unknown.item() == pytest.approx(-5 + 6 + 4 / 3)
    # The same as on logits from which the smallest was subtracted.
    shifted, of_shifted = revise(f + 5, w, 3)
    torch.testing.assert_close(shifted - 5, revised)
    torch.testing.assert_close(of_shifted - 5, unknown)


def test_certainly_unknown_images_do_not_tie() -> None:
    scores = log_known_probability(rows([1.0], [2.0]), torch.tensor([90.0, 90.0], dtype=torch.float64))
    assert scores[1] > scores[0]
    certain = log_known_probability(rows([90.0], [91.0]), torch.zeros(2, dtype=torch.float64))
    assert certain[1] > certain[0]


def test_distances_by_hand() -> None:
    f, means = rows([3.0, 4.0]), rows([0.0, 0.0], [4.0, 3.0])
    assert distances(f, means, "euclidean").tolist() == [pytest.approx([5.0, math.sqrt(2)])]
    assert distances(f, means, "cosine")[0, 1].item() == pytest.approx(1 - 24 / 25)
    assert distances(f, means, "eucos")[0, 1].item() == pytest.approx(math.sqrt(2) / 200 + 1 / 25)


@pytest.mark.parametrize("kind", ["euclidean", "cosine", "eucos"])
@pytest.mark.parametrize("shift", ["libmr", 1.0])
@pytest.mark.parametrize("shift_logits", [True, False])
def test_equals_the_loops(kind: str, shift: float | str, shift_logits: bool) -> None:
    train, test = images(), images(seed=1, count=24)
    assert train.logits is not None
    assert test.logits is not None
    made = OpenMax(12, 3, kind, shift, shift_logits=shift_logits).fit(train, 4)
    found = made.score(test)
    arrays = [x.double().numpy() for x in (test.logits, train.logits)]
    unknown, named = reference.openmax(*arrays, train.labels.tolist(), 12, 3, kind, shift, shift_logits)
    # scipy stops its search at about 1e-5 of the parameters.
    np.testing.assert_allclose(1 - found.score.exp().numpy(), unknown, atol=2e-4)
    assert found.label.tolist() == named


def test_neals_variant_is_the_energy_of_what_is_left() -> None:
    train, test = images(), images(seed=1, count=24)
    assert test.logits is not None
    made = OpenMax(variant="neal").fit(train, 4)
    state = made.state()
    tails = Tails(*(state[name] for name in ("location", "width", "origin", "fitted")))
    f = test.logits.double()
    left = f * (1 - tails.outlyingness(torch.cdist(f, state["means"])))
    torch.testing.assert_close(made.score(test).score, energy(left), rtol=1e-9, atol=1e-9)
    assert torch.equal(made.score(test).label, left.argmax(1))
    assert OpenMax(variant="neal", shift_logits=True).fit(train, 4).score(test).score.isfinite().all()


def test_learns_from_correctly_named_images_only() -> None:
    train = images()
    assert train.logits is not None
    right = train.logits.argmax(1) == train.labels
    assert int((~right).sum()) > 0
    whole, part = OpenMax().fit(train, 4), OpenMax().fit(train.select(right), 4)
    for name, value in whole.state().items():
        assert torch.equal(value, part.state()[name])
    assert not torch.equal(OpenMax(tail=5).fit(train, 4).state()["width"], whole.state()["width"])


def test_classes_of_few_images_are_never_revised() -> None:
    logits = torch.tensor([[5.0, 0, 0], [6.0, 0, 0], [4.0, 1, 0], [0, 5.0, 1], [0, 3.0, 4.0]])
    train = Outputs(torch.zeros(5, 1), torch.tensor([0, 0, 0, 1, 1]), logits)
    made = OpenMax().fit(train, 3)  # of class 1 one image is named right; class 2 has none
    state = made.state()
    assert state["fitted"].tolist() == [True, False, False]
    assert state["means"][1].tolist() == [0.0, 4.0, 2.5]  # of all its images
    far = Outputs(
        torch.zeros(2, 1), torch.tensor([-1, -1]), torch.tensor([[-9.0, 80.0, 0.0], [80.0, 9.0, 0.0]])
    )
    revised = made.class_scores(far)
    assert revised[0].tolist() == [-9.0, 80.0, 0.0]
    assert revised[1, 0].item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("variant", ["openmax", "neal"])
@pytest.mark.parametrize("shift", ["libmr", 1.0])
def test_extreme_logits_give_finite_scores(variant: str, shift: float | str) -> None:
    made = OpenMax(variant=variant, shift=shift).fit(images(), 4)
    z = torch.tensor([[3e38, -3e38, 0, 0], [-3e38] * 4, [3e38] * 4, [0.0] * 4])
    found = made.score(Outputs(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), z))
    assert found.score.isfinite().all()


@pytest.mark.parametrize("shift", ["libmr", 2.0])
def test_settings_and_state_survive(shift: float | str) -> None:
    made = OpenMax(7, 2, "eucos", shift, "neal", shift_logits=True).fit(images(), 4)
    again = load_detector("openmax", made.settings(), {k: v.clone() for k, v in made.state().items()})
    assert again.settings() == made.settings()
    assert torch.equal(again.score(images(3)).score, made.score(images(3)).score)


@pytest.mark.parametrize("kind", ["euclidean", "eucos"])
@pytest.mark.parametrize("variant", ["openmax", "neal"])
def test_the_graph_says_the_same(kind: str, variant: str) -> None:
    made, test = OpenMax(openmax_distance=kind, variant=variant).fit(images(), 4), images(2)
    score, label = made.graph(test)
    torch.testing.assert_close(score, made.score(test).score, rtol=1e-9, atol=1e-9)
    assert torch.equal(label, made.score(test).label)


def test_mistakes_are_named() -> None:
    for setting, message in (
        ({"tail": 2}, "tail of at least 3 images, not 2"),
        ({"alpha": 0}, "alpha of at least 1"),
        ({"shift": "libm"}, "shift must be 'libmr' or a positive number, not libm"),
        ({"openmax_distance": "cosin"}, "did you mean 'cosine'"),
        ({"variant": "neel"}, "did you mean 'neal'"),
    ):
        with pytest.raises(UserError, match=message):
            make_detector("openmax", **setting)
    with pytest.raises(UserError, match="call fit first"):
        OpenMax().score(images())
    with pytest.raises(UserError, match="logits of 4 classes, but 3 are known"):
        OpenMax().fit(images(classes=3), 3).score(images())
