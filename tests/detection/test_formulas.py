"""Scores that learn nothing, by hand and against loops: placeholders, errors, rotations, CLIP."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradmix.detection import FormulaDetector, Outputs, make_detector
from gradmix.detection.mcm import clipn_atd, clipn_ctw, gl_mcm, mcm, negprompt
from gradmix.detection.placeholder import osrci, placeholder
from gradmix.detection.reconstruction import reconstruction
from gradmix.detection.rotation import rotpred
from gradmix.errors import UserError
from tests.reference.detectors import softmax


def row(*values: float) -> Tensor:
    return torch.tensor([values])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_placeholder_by_hand() -> None:
    assert placeholder(row(2, 1), row(0.5)).item() == 1.5
    assert placeholder(row(2, 1), row(0.5, 3.0)).item() == -1.0  # the largest dummy counts
    assert placeholder(row(2, 1), row(0.5), probability=1024).item() == pytest.approx(4.88e-4, abs=5e-7)
    p = softmax([2.0, 1.0, 0.5])
    assert placeholder(row(2, 1), row(0.5), probability=1).item() == pytest.approx(p[0] - p[2])


def test_both_forms_of_placeholder_have_nearly_one_order() -> None:
    f, g = drawn(1000, 6), drawn(1000, 1, seed=1)
    plain, released = (placeholder(f, g, probability).argsort().argsort() for probability in (None, 1024))
    assert int((plain - released).abs().max()) <= 20


def test_osrci_by_hand() -> None:
    p = softmax([2.0, 0.0, 0.0])
    assert p == pytest.approx([0.7870, 0.1065, 0.1065], abs=5e-5)
    assert osrci(row(2, 0)).item() == pytest.approx(0.6805, abs=5e-5)
    for logits in drawn(20, 4).tolist():
        p = softmax([*logits, 0.0])
        assert osrci(row(*logits)).item() == pytest.approx(max(p[:-1]) - p[-1], abs=1e-6)


def test_reconstruction_by_hand() -> None:
    assert reconstruction(row(0.15, 0.5)).item() == pytest.approx(-0.15)


def test_rotpred_by_hand() -> None:
    # p = (½, ¼, ¼): KL(U‖p) = −log 3 − ⅓·log(1/32); rotations are told with probability ½, ½, ¼, ¼.
    f = row(math.log(2), 0, 0)
    certain = math.log(3)  # one entry of three times the weight of each of the others: p = ½
    turns = torch.zeros(1, 4, 4)
    turns[0, 0, 0] = turns[0, 1, 1] = certain
    expected = -math.log(3) + math.log(32) / 3 - (2 * math.log(2) + 2 * math.log(4)) / 4
    assert rotpred(f, turns).item() == pytest.approx(expected, abs=1e-6)
    # Sure of the wrong rotation is worse than unsure, sure of the right one better.
    unsure, wrong, right = torch.zeros(1, 4, 4), torch.zeros(1, 4, 4), 9 * torch.eye(4)[None]
    wrong[0, :, 0] = 9.0
    scores = [rotpred(f, turned).item() for turned in (wrong, unsure, right)]
    assert scores == sorted(scores)


def test_rotpred_equals_the_loops() -> None:
    logits, turns = drawn(10, 5), drawn(10, 4, 4, seed=1)
    for i in range(10):
        p = softmax(logits[i].tolist())
        kl = sum(1 / 5 * math.log((1 / 5) / x) for x in p)
        cross = sum(-math.log(softmax(turns[i, r].tolist())[r]) for r in range(4)) / 4
        assert rotpred(logits, turns)[i].item() == pytest.approx(kl - cross, abs=1e-9)


def test_mcm_by_hand() -> None:
    assert mcm(row(0.3, 0.2)).item() == pytest.approx(0.5250, abs=5e-5)
    assert mcm(row(0.3, 0.2), temperature=0.01).item() == pytest.approx(0.99995, abs=5e-6)  # CLIP's scale
    patches = [[0.3, 0.1], [0.2, 0.5]]
    local = max(max(softmax(patch)) for patch in patches)
    assert gl_mcm(row(0.3, 0.2), row(local)).item() == pytest.approx(0.5250 + 0.5744, abs=1e-4)


def test_negprompt_by_hand() -> None:
    p = softmax([0.30, 0.10, 0.20, 0.25])
    assert p == pytest.approx([0.2721, 0.2228, 0.2462, 0.2589], abs=5e-5)
    assert negprompt(row(0.30, 0.20), row(0.10, 0.25)).item() == pytest.approx(0.2721, abs=5e-5)
    # The largest of all may be a negative one: it is not the score.
    assert negprompt(row(0.1), row(0.9)).item() == pytest.approx(softmax([0.1, 0.9])[0], abs=1e-7)


def test_clipn_by_hand() -> None:
    f, g = row(5, 3), row(4, 4)
    assert clipn_ctw(f, g).item() == pytest.approx(0.7311, abs=5e-5)
    assert clipn_atd(f, g).item() == pytest.approx(0.6760, abs=5e-5)
    yes, no = drawn(10, 4), drawn(10, 4, seed=1)
    for i, (a, b) in enumerate(zip(yes.tolist(), no.tolist(), strict=True)):
        q = [1 / (1 + math.exp(v - u)) for u, v in zip(a, b, strict=True)]
        assert clipn_ctw(yes, no)[i].item() == pytest.approx(q[a.index(max(a))], abs=1e-9)
        total = sum(x * y for x, y in zip(softmax(a), q, strict=True))
        assert clipn_atd(yes, no)[i].item() == pytest.approx(total, abs=1e-9)


LOGITS, COSINES = row(2, 5, 1), row(0.1, 0.2, 0.4)
PARTS = {
    "dummies": row(3.0, 1.0),
    "errors": row(0.1, 0.5, 0.2),
    "rotation": drawn(1, 4, 4),
    "cosines": COSINES,
    "local_mcm": row(0.5),
    "negative_cosines": row(0.1, 0.3, 0.2, 0.0, 0.5, 0.1),
    "no_logits": row(1.0, 2.0, 3.0),
}


@pytest.mark.parametrize(
    ("name", "expected", "label"),
    [
        ("placeholder", placeholder(LOGITS, PARTS["dummies"]), 1),
        ("osrci", osrci(LOGITS), 1),
        ("reconstruction", torch.tensor([-0.1]), 1),  # the classifier names it, not the smallest error
        ("rotpred", rotpred(LOGITS, PARTS["rotation"]), 1),
        ("mcm", mcm(COSINES), 2),
        ("gl-mcm", gl_mcm(COSINES, PARTS["local_mcm"]), 2),
        ("negprompt", negprompt(COSINES, PARTS["negative_cosines"]), 2),
        ("clipn-ctw", clipn_ctw(LOGITS, PARTS["no_logits"]), 1),
        ("clipn-atd", clipn_atd(LOGITS, PARTS["no_logits"]), 1),
    ],
)
def test_the_detector_computes_its_formula(name: str, expected: Tensor, label: int) -> None:
    some = Outputs(torch.zeros(1, 2), torch.tensor([-1]), LOGITS, PARTS)
    detector = make_detector(name).fit(some, 3)
    assert isinstance(detector, FormulaDetector)
    found = detector.score(some)
    assert found.score.item() == pytest.approx(expected.item(), abs=1e-6)
    assert found.label.tolist() == [label]
    with pytest.raises(UserError, match="of 3 classes, but 2 are known"):
        make_detector(name).fit(some, 2).score(some)
    without = {part: values for part, values in PARTS.items() if part not in detector.needs}
    if detector.needs != {"logits"}:
        with pytest.raises(UserError, match=f"'{name}' needs"):
            detector.score(Outputs(some.features, some.labels, LOGITS, without))


def test_settings_reach_the_formula_and_survive() -> None:
    some = Outputs(torch.zeros(1, 2), torch.tensor([-1]), LOGITS, PARTS)
    for name, settings, expected in (
        ("placeholder", {"probability": 8.0}, placeholder(LOGITS, PARTS["dummies"], 8.0)),
        ("mcm", {"temperature": 0.1}, mcm(COSINES, 0.1)),
        ("negprompt", {"temperature": 0.1}, negprompt(COSINES, PARTS["negative_cosines"], 0.1)),
    ):
        made = make_detector(name, **settings).fit(some, 3)
        again = type(made).from_state(made.state(), made.settings())
        assert made.settings() == again.settings() == settings
        assert torch.equal(made.score(some).score, expected)
        assert torch.equal(again.score(some).score, expected)
        with pytest.raises(UserError, match=f"{name} needs a positive temperature"):
            make_detector(name, **dict.fromkeys(settings, 0.0))


def test_an_output_that_is_not_finite_is_named() -> None:
    bad = Outputs(torch.zeros(2, 1), torch.tensor([0, 0]), torch.zeros(2, 2), {"errors": row(1, math.nan).T})
    with pytest.raises(UserError, match="errors of image 1 are not finite"):
        make_detector("reconstruction").score(bad)
