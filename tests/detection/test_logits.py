from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.detection import DETECTORS, Outputs, energy, entropy, make_detector, mls, msp
from gradmix.errors import UserError
from tests.reference import detectors as reference

NAMES = ["msp", "entropy", "mls", "energy"]
rows = st.integers(1, 6).flatmap(
    lambda c: st.lists(st.lists(st.floats(-30, 30), min_size=c, max_size=c), min_size=1, max_size=5)
)


@settings(max_examples=60, deadline=None)
@given(rows, st.floats(0.1, 10))
def test_equal_the_loops(logits, temperature):
    z = torch.tensor(logits, dtype=torch.float64)
    for ours, slow in ((msp, reference.msp), (entropy, reference.entropy), (mls, reference.mls)):
        assert ours(z).tolist() == pytest.approx([slow(row) for row in logits], abs=1e-9)
    expected = [reference.msp([x / temperature for x in row]) for row in logits]
    assert msp(z, temperature).tolist() == pytest.approx(expected, abs=1e-9)
    expected = [reference.energy(row, temperature) for row in logits]
    assert energy(z, temperature).tolist() == pytest.approx(expected, abs=1e-6)


def test_equal_logits_have_closed_forms():
    z = torch.full((1, 8), 2.0)
    assert msp(z).item() == pytest.approx(1 / 8)
    assert entropy(z).item() == pytest.approx(-math.log(8))
    assert mls(z).item() == 2
    assert energy(z).item() == pytest.approx(2 + math.log(8))


def test_the_softmax_forgets_the_size_of_the_logits():
    z = torch.tensor([[2.0, 1.0, 0.0], [20.0, 19.0, 18.0]], dtype=torch.float64)
    assert msp(z).tolist() == pytest.approx([0.6652, 0.6652], abs=5e-5)
    assert mls(z).tolist() == [2, 20]


@pytest.mark.parametrize(("name", "score"), [("msp", msp), ("energy", energy)])
def test_the_temperature_is_used_and_kept(name, score):
    z = torch.tensor([[3.0, 1.0, 0.0]])
    assert msp(z, 100.0).item() == pytest.approx(0.3389, abs=5e-5)
    some = Outputs(torch.zeros(1, 1), torch.tensor([-1]), z)
    made = make_detector(name, temperature=100.0).fit(some, 3)
    again = type(made).from_state(made.state(), made.settings())
    for detector in (made, again):
        assert torch.equal(detector.score(some).score, score(z, 100.0))
    with pytest.raises(UserError, match=f"{name} needs a positive temperature"):
        make_detector(name, temperature=-1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_more_certain_image_scores_higher_and_is_named(name):
    z = torch.tensor([[0.1, 0.0, 0.2], [9.0, 0.0, 1.0]])
    empty = Outputs(torch.zeros(2, 1), torch.tensor([-1, -1]), z)
    scores = make_detector(name).fit(empty, 3).score(empty)
    assert scores.score[1] > scores.score[0]
    assert scores.label.tolist() == [2, 0]


def test_confident_images_do_not_tie():
    z = torch.tensor([[20.0, 0.0], [25.0, 0.0]])  # both 1.0 in float32
    assert msp(z)[1] > msp(z)[0]
    assert entropy(z)[1] > entropy(z)[0]


@pytest.mark.parametrize("name", NAMES)
def test_extreme_logits_give_finite_scores(name):
    z = torch.tensor([[3e38, -3e38], [-3e38, -3e38], [3e38, 3e38], [0.0, 0.0]])
    scores = make_detector(name).score(Outputs(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), z))
    assert torch.isfinite(scores.score).all()


def test_mistakes_are_named():
    without = Outputs(torch.zeros(2, 1), torch.tensor([0, 0]))
    with pytest.raises(UserError, match="'msp' needs logits"):
        make_detector("msp").score(without)
    three = Outputs(without.features, without.labels, torch.zeros(2, 3))
    with pytest.raises(UserError, match="logits of 3 classes, but 2"):
        make_detector("mls").fit(without, 2).score(three)
    with pytest.raises(UserError, match="did you mean 'energy'"):
        make_detector("enrgy")
    with pytest.raises(UserError, match=r"'energy' has no setting 'k' \(it has: temperature\)"):
        make_detector("energy", k=3)
    with pytest.raises(UserError, match="positive temperature"):
        make_detector("energy", temperature=0)
    bad = Outputs(without.features, without.labels, torch.tensor([[0.0, 1.0], [math.inf, 0.0]]))
    with pytest.raises(UserError, match="logits of image 1 are not finite"):
        make_detector("mls").score(bad)


def test_registry_is_keyed_by_the_detectors_own_names():
    for name in DETECTORS:
        detector = make_detector(name)
        assert detector.name == name
        alone = [*NAMES, "openmax", "osrci", "gen", "temperature", "klm"]
        assert (detector.needs == {"logits"}) == (name in alone)
        assert not detector.needs_held_out or detector.uses_held_out


def test_outputs_of_unequal_length_are_refused():
    with pytest.raises(UserError, match="3 features but labels"):
        Outputs(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError, match="3 features but logits"):
        Outputs(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.zeros(2, 5))
    with pytest.raises(UserError, match="images, dimensions"):
        Outputs(torch.zeros(3), torch.zeros(3, dtype=torch.int64))
