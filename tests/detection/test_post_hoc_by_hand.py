"""Every post-hoc score by hand, from the arrays that somebody without our networks would have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from gradmix.detection import (
    ASH,
    DICE,
    FDBD,
    GEN,
    NCI,
    NECO,
    RMDS,
    SHE,
    VRA,
    KLMatching,
    KNNDistance,
    NNGuide,
    Outputs,
    ReAct,
    Relation,
    Residual,
    Scale,
    Temperature,
    ViM,
    outputs_of,
)
from gradmix.detection.shaping import percentiles
from gradmix.detection.temperature import fit_temperature
from tests.detection.post_hoc_toy import CLASSES, DIM, TEST, TRAIN, as_data, toy
from tests.reference import post_hoc as reference


def of_logits(*rows: list[float]) -> Outputs:
    return outputs_of(logits=np.array(rows))


def of_h(
    rows: list[list[float]], labels: list[int] | None = None, weight: Any = None, bias: Any = None
) -> Outputs:
    """Activations under a head, the identity unless another is given."""
    h = np.array(rows)
    weight = np.eye(h.shape[1]) if weight is None else np.array(weight)
    bias = np.zeros(len(weight)) if bias is None else np.array(bias)
    return outputs_of(penultimate=h, head=(weight, bias), labels=None if labels is None else np.array(labels))


def test_gen() -> None:
    # p = (3/4, 1/4): both p(1 − p) are 3/16.
    assert float(GEN(gamma=0.5).score(of_logits([math.log(3), 0.0])).score) == pytest.approx(
        -math.sqrt(3) / 2
    )
    one = GEN(gamma=0.5, largest=1).score(of_logits([math.log(3), 0.0])).score
    assert float(one) == pytest.approx(-math.sqrt(3) / 4)
    sure = GEN().score(of_logits([60.0, 0.0], [80.0, 0.0])).score
    assert sure[0] < sure[1] < 0  # 1 − p would be 0 in float64


def test_temperature() -> None:
    # Three of four images with logits (2, 0) are of class 0: e^(2/T) = 3.
    held = outputs_of(logits=np.array([[2.0, 0.0]] * 4), labels=np.array([0, 0, 0, 1]))
    made = Temperature().fit(held, 2, held_out=held)
    assert made.temperature == pytest.approx(2 / math.log(3))
    assert float(made.score(of_logits([2.0, 0.0])).score) == pytest.approx(0.75)
    f, y = as_data(TEST).f, as_data(TEST).y
    best = fit_temperature(torch.from_numpy(f), torch.from_numpy(y))
    nearby = [reference.nll(f, y, best * factor) for factor in (0.9, 0.99, 1.01, 1.1)]
    assert reference.nll(f, y, best) <= min(nearby)
    sure = outputs_of(logits=np.array([[2.0, 0.0]]), labels=np.array([0]))
    assert Temperature().fit(sure, 2, held_out=sure).temperature == pytest.approx(1 / 25)
    logits, labels = torch.from_numpy(f), torch.from_numpy(y)
    assert fit_temperature(logits * 1e-3, labels) == pytest.approx(1e-3 * best)
    assert fit_temperature(torch.ones(2, 3), torch.tensor([0, 1])) == 1.0


def test_klm() -> None:
    log3 = math.log(3)  # typical: (3, 1)/4 and (1, 3)/4
    train = outputs_of(logits=np.array([[log3, 0.0], [0.0, log3]]), labels=np.array([0, 1]))
    made = KLMatching().fit(train, 2)
    assert float(made.score(of_logits([log3, 0.0])).score) == pytest.approx(0.0, abs=1e-12)
    assert float(made.score(of_logits([0.0, 0.0])).score) == pytest.approx(0.5 * math.log(3 / 4))


def test_knn_distance() -> None:
    train, labels = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]]), np.array([0, 1, 1])
    found = KNNDistance(k=2).fit(train, labels).score(np.array([[0.0, 9.0], [5.0, 0.0]]))
    assert found.score.tolist() == pytest.approx([0.0, -math.sqrt(2)], abs=1e-6)
    assert found.label.tolist() == [1, 0]  # the second: 1 for class 0, and 1/2 for class 1
    far = KNNDistance(k=50).fit(train, labels).score(np.array([[0.0, 9.0]]))  # of three
    assert float(far.score) == pytest.approx(-math.sqrt(2))


def test_rmds() -> None:
    # Classes at −2 and 2, each spread by 1: within 1, total 5. At 0: MD_c = 4, MD₀ = 0. At 2: 0 and 4/5.
    made = RMDS().fit(np.array([[-3.0], [-1.0], [1.0], [3.0]]), np.array([0, 0, 1, 1]))
    found = made.score(np.array([[0.0], [2.0], [-2.0]]))
    assert found.score.tolist() == pytest.approx([-4.0, 0.8, 0.8])
    assert found.label.tolist()[1:] == [1, 0]
    assert made.class_scores(outputs_of(np.array([[2.0]])))[0].tolist() == pytest.approx([-15.2, 0.8])


def test_she() -> None:
    # The image (0, 1) of class 0 is taken for class 1: it is not stored.
    made = SHE().fit(of_h([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 5.0]], [0, 0, 0, 1]), 2)
    assert made.score(of_h([[1.0, 0.5], [1.0, 2.0]])).score.tolist() == [3.0, 10.0]


def test_vim_and_residual() -> None:
    # W = (1, 0), b = −1: o = (1, 0). From there the training images lie along the first axis, but for ±1.
    head = {"weight": [[1.0, 0.0]], "bias": [-1.0]}
    train = of_h([[9.0, 1.0], [9.0, -1.0]], [0, 0], **head)  # f = 8
    test = of_h([[3.0, 2.0]], **head)  # f = 2, and 2 off the axis
    assert float(Residual(dim=1).fit(train, 1).score(test).score) == pytest.approx(-2.0)
    assert float(ViM(dim=1).fit(train, 1).score(test).score) == pytest.approx(2.0 - 8.0 * 2.0)


def test_neco() -> None:
    # Standardized, the two dimensions are ±1 and equal: the leading axis is (1, 1)/√2 and holds everything.
    h, labels, head = np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([0, 1]), (np.eye(2), np.zeros(2))
    test = np.array([[2.0, 4.0], [2.0, 0.0], [2.0, 2.0]])
    found = NECO().fit(penultimate=h, labels=labels).score(penultimate=test)
    assert found.score.tolist() == pytest.approx([1.0, 0.0, math.sqrt(0.5)], abs=1e-9)
    assert int(found.label[0]) == 1  # the nearest class mean
    times = NECO().fit(penultimate=h, labels=labels, head=head).score(penultimate=test, head=head)
    assert times.score.tolist() == pytest.approx([4.0, 0.0, 2 * math.sqrt(0.5)], abs=1e-9)


def test_fdbd() -> None:
    # f = (3, 1, 0), the weights at distances 1 and 2 from the first: (2/1 + 3/2)/2, and ‖h − mean‖ = 5.
    head = (np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), np.zeros(3))
    made = FDBD().fit(penultimate=np.zeros((1, 2)), labels=np.array([0]), head=head, num_classes=3)
    test = outputs_of(penultimate=np.array([[3.0, 4.0]]), logits=np.array([[3.0, 1.0, 0.0]]), head=head)
    assert float(made.score(test).score) == pytest.approx((2 + 1.5) / 2 / 5)


def test_nci() -> None:
    made = NCI(alpha=0.1).fit(of_h([[1.0, 0.0], [1.0, 2.0]], [0, 1]), 2)  # mean (1, 1)
    assert float(made.score(of_h([[4.0, 5.0]])).score) == pytest.approx(4 / 5 + 0.1 * 9)


def test_nnguide() -> None:
    # One class: the energy is the logit. In the bank: 2 along the first axis, 3 along the second.
    train = of_h([[2.0, 0.0], [0.0, 3.0]], [0, 0], weight=[[1.0, 1.0]])
    test = of_h([[5.0, 0.0]], weight=[[1.0, 1.0]])
    assert float(NNGuide(k=1).fit(train, 1).score(test).score) == pytest.approx(5 * 2)
    assert float(NNGuide(k=2).fit(train, 1).score(test).score) == pytest.approx(5 * 1)
    assert NNGuide(k=1, smallest=3).fit(toy(600, 2), CLASSES).bank.shape == (6, DIM)  # 1 % of them
    assert NNGuide().fit(TRAIN, CLASSES).bank.shape == (60, DIM)  # all, of fewer than 1,000


def test_relation() -> None:
    # Cosines 1, 1/√2 (to the fourth: 1/4) and −1, predictions p·pᵢ = 1/2 of two equal logits.
    h = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    made = Relation().fit(penultimate=h, logits=np.zeros((3, 2)), labels=np.array([0, 1, 1]))
    found = made.score(penultimate=np.array([[2.0, 0.0]]), logits=np.zeros((1, 2)))
    assert float(found.score) == pytest.approx((1 + 0.25) / 2)


def test_shaping() -> None:
    head = {"weight": [[1.0, 1.0, 1.0, 1.0]]}  # one class: the energy is the sum
    train = of_h([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 10.0]], [0, 0], **head)
    test = of_h([[1.0, 2.0, 4.0, 9.0]], **head)
    assert float(ReAct(clip=4 / 7).fit(train, 1).score(test).score) == pytest.approx(1 + 2 + 4 + 4)
    assert float(VRA(low=2 / 7, high=5 / 7).fit(train, 1).score(test).score) == pytest.approx(0 + 2 + 4 + 5)
    assert float(ASH(prune=0.5).score(test).score) == pytest.approx(13 * math.exp(16 / 13))
    assert float(Scale(prune=0.5).score(test).score) == pytest.approx(16 * math.exp(16 / 13))
    # Mean activations 2, 3, 4, 6.5: the two largest contributions are the last two.
    assert float(DICE(keep=0.5).fit(train, 1).score(test).score) == pytest.approx(4 + 9)


def test_ash_prunes_more_of_wide_networks() -> None:
    h = torch.arange(1.0, 2001.0, dtype=torch.float64)[None]
    assert int((ASH().shape(h) > 0).sum()) == 200
    assert int((ASH().shape(h[:, :1000]) > 0).sum()) == 350


def test_percentiles_of_very_many_are_those_of_evenly_spaced_images(monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.arange(1000.0)[:, None]
    monkeypatch.setattr("gradmix.detection.shaping._MOST_VALUES", 100)
    assert float(percentiles(h, (0.5,))) == pytest.approx(499.5, abs=10)
