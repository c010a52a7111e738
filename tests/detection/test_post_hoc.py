"""Every post-hoc score against a loop over the images; its invariances; degenerate input; refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradmix.bench.detector_loops import LOOPS
from gradmix.detection import (
    ASH,
    DETECTORS,
    DICE,
    GEN,
    NCI,
    NECO,
    VRA,
    KNNDistance,
    NNGuide,
    Outputs,
    ReAct,
    Relation,
    Temperature,
    ViM,
    make_detector,
    outputs_of,
)
from gradmix.errors import UserError
from tests.detection.post_hoc_toy import CLASSES, DIM, NEW, TEST, TRAIN, as_data
from tests.reference import post_hoc as reference

Loop = Callable[[Any, Any, reference.Data], float]
CASES: list[tuple[str, dict[str, Any], Loop, float]] = [
    ("gen", {}, lambda h, f, t: reference.gen(f), 1e-9),
    ("gen", {"gamma": 0.5, "largest": 2}, lambda h, f, t: reference.gen(f, 0.5, 2), 1e-9),
    ("klm", {}, lambda h, f, t: reference.klm(f, t), 1e-9),
    ("knn_distance", {"k": 5}, lambda h, f, t: reference.knn_distance(h, t, 5), 1e-5),  # in float32
    ("rmds", {}, lambda h, f, t: reference.rmds(h, t), 1e-8),
    ("she", {}, lambda h, f, t: reference.she(h, f, t), 1e-9),
    ("vim", {}, lambda h, f, t: reference.vim(h, f, t, DIM // 2), 1e-9),
    ("vim", {"dim": 2}, lambda h, f, t: reference.vim(h, f, t, 2), 1e-9),
    ("residual", {}, lambda h, f, t: reference.residual(h, t, DIM // 2), 1e-9),
    ("neco", {}, lambda h, f, t: reference.neco(h, f, t), 1e-9),
    ("neco", {"variance": 0.5}, lambda h, f, t: reference.neco(h, f, t, 0.5), 1e-9),
    ("fdbd", {}, lambda h, f, t: reference.fdbd(h, f, t), 1e-9),
    ("nci", {}, lambda h, f, t: reference.nci(h, f, t), 1e-9),
    ("nci", {"alpha": 0.5}, lambda h, f, t: reference.nci(h, f, t, 0.5), 1e-9),
    ("nnguide", {"k": 4}, lambda h, f, t: reference.nnguide(h, f, t, 4), 1e-5),
    ("relation", {}, lambda h, f, t: reference.relation(h, f, t), 1e-5),
    ("relation", {"power": 3}, lambda h, f, t: reference.relation(h, f, t, 3), 1e-5),
    ("react", {}, lambda h, f, t: reference.react(h, t), 1e-9),
    ("react", {"clip": 0.5}, lambda h, f, t: reference.react(h, t, 0.5), 1e-9),
    ("vra", {}, lambda h, f, t: reference.vra(h, t), 1e-9),
    ("vra", {"low": 0.2, "high": 0.5}, lambda h, f, t: reference.vra(h, t, 0.2, 0.5), 1e-9),
    ("ash", {}, lambda h, f, t: reference.ash(h, t, 0.65), 1e-9),
    ("ash", {"prune": 0.2}, lambda h, f, t: reference.ash(h, t, 0.2), 1e-9),
    ("scale", {}, lambda h, f, t: reference.scale(h, t), 1e-9),
    ("dice", {}, lambda h, f, t: reference.dice(h, t), 1e-9),
    ("dice", {"keep": 0.7}, lambda h, f, t: reference.dice(h, t, 0.7), 1e-9),
]


@pytest.mark.parametrize(("name", "settings", "loop", "close"), CASES)
def test_equal_the_loops(name: str, settings: dict[str, Any], loop: Loop, close: float) -> None:
    found = make_detector(name, **settings).fit(TRAIN, CLASSES).score(TEST)
    train, test = as_data(TRAIN), as_data(TEST)
    expected = [loop(h, f, train) for h, f in zip(test.h, test.f, strict=True)]
    assert found.score.tolist() == pytest.approx(expected, rel=close, abs=close)
    if "logits" in DETECTORS[name].needs:
        assert found.label.tolist() == test.f.argmax(axis=1).tolist()


@pytest.mark.parametrize("name", LOOPS)
def test_the_loops_of_the_benchmark_compute_the_same(name: str) -> None:
    settings = {"k": 50} if name == "knn_distance" else {}
    found = make_detector(name, **settings).fit(TRAIN, CLASSES).score(TEST).score
    assert found.tolist() == pytest.approx(LOOPS[name](TRAIN, TEST).tolist(), rel=1e-5, abs=1e-5)


def test_every_new_score_has_a_loop() -> None:
    assert {case[0] for case in CASES} == set(NEW) - {"temperature"}


@pytest.mark.parametrize("name", NEW)
def test_chunks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_detector(name).fit(TRAIN, CLASSES, held_out=TEST).score(TEST)
    monkeypatch.setattr("gradmix.detection.learned.chunks.__defaults__", (7,))
    for constant in ("relation._TRAIN_AT_ONCE", "relation._QUERIES_AT_ONCE", "nno._ROWS_AT_A_TIME"):
        monkeypatch.setattr(f"gradmix.detection.{constant}", 5)
    parts = make_detector(name).fit(TRAIN, CLASSES, held_out=TEST).score(TEST)
    torch.testing.assert_close(parts.score, whole.score, rtol=1e-5, atol=1e-5)
    assert torch.equal(parts.label, whole.label)


@pytest.mark.parametrize("name", NEW)
def test_the_order_of_the_training_images_does_not_matter(name: str) -> None:
    order = torch.randperm(len(TRAIN.labels), generator=torch.Generator().manual_seed(0))
    one = make_detector(name).fit(TRAIN, CLASSES, held_out=TEST).score(TEST)
    other = make_detector(name).fit(TRAIN.select(order), CLASSES, held_out=TEST).score(TEST)
    torch.testing.assert_close(one.score, other.score, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gen", "temperature", "klm"])
def test_a_constant_added_to_all_logits_does_not_matter(name: str) -> None:
    def score(added: float) -> torch.Tensor:
        assert TRAIN.logits is not None
        assert TEST.logits is not None
        train = outputs_of(logits=TRAIN.logits + added, labels=TRAIN.labels)
        test = outputs_of(logits=TEST.logits + added, labels=TEST.labels)
        return make_detector(name).fit(train, CLASSES, held_out=test).score(test).score

    torch.testing.assert_close(score(0.0), score(5.0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["knn_distance", "relation", "nnguide"])
def test_the_length_of_h_does_not_matter_to_directions(name: str) -> None:
    def scaled(o: Outputs) -> Outputs:
        assert o.penultimate is not None
        return Outputs(o.features, o.labels, o.logits, penultimate=7 * o.penultimate)

    one = make_detector(name).fit(TRAIN, CLASSES).score(TEST)
    other = make_detector(name).fit(scaled(TRAIN), CLASSES).score(scaled(TEST))
    torch.testing.assert_close(one.score, other.score, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["rmds", "neco", "residual"])
def test_a_rotation_or_a_shift_of_h_does_not_matter_to_distances(name: str) -> None:
    """rmds: any affine map; neco: a scale per dimension, and a shift; residual: a rotation of h and W."""
    assert TRAIN.head is not None
    generator = torch.Generator().manual_seed(3)
    turn: torch.Tensor = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))[0]
    scales = torch.rand(DIM, generator=generator, dtype=torch.float64) + 0.5
    change = {"rmds": turn * scales, "neco": scales.diag(), "residual": turn}[name]
    shift = 0.0 if name == "residual" else 3.0

    def moved(o: Outputs) -> Outputs:
        assert o.penultimate is not None
        assert o.head is not None
        h = o.penultimate @ change + shift
        return outputs_of(
            penultimate=h, labels=o.labels, logits=o.logits, head=(o.head.weight @ change, o.head.bias)
        )

    one = make_detector(name).fit(TRAIN, CLASSES).score(TEST)
    other = make_detector(name).fit(moved(TRAIN), CLASSES).score(moved(TEST))
    torch.testing.assert_close(one.score, other.score, rtol=1e-7, atol=1e-7)


DEGENERATE = {
    "zero": torch.zeros(8, 4),
    "constant": torch.full((8, 4), 2.0),
    "huge": torch.tensor([[3e30, 0.0, 0.0, 0.0]]).repeat(8, 1),
    "negative": torch.full((8, 4), -1.0),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", NEW)
def test_scores_are_finite_whatever_the_activations(name: str, classes: int, kind: str) -> None:
    head = (torch.ones(classes, 4), torch.zeros(classes))  # equal weights: no boundary between the classes
    train = outputs_of(penultimate=DEGENERATE[kind], head=head, labels=torch.arange(8) % classes)
    other = outputs_of(penultimate=torch.tensor([[0.0] * 4, [1.0, 2.0, 0.0, 0.0]]), head=head)
    made = make_detector(name).fit(train, classes, held_out=train)
    for test in (train, other):
        found = made.score(test)
        assert found.score.isfinite().all()
        assert ((found.label >= 0) & (found.label < classes)).all()


@pytest.mark.parametrize("name", NEW)
def test_a_class_without_training_images_does_no_harm(name: str) -> None:
    some = TRAIN.select(TRAIN.labels != 1)
    assert make_detector(name).fit(some, CLASSES, held_out=TEST).score(TEST).score.isfinite().all()


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: GEN(gamma=2.0), "gen needs gamma between 0 and 1, not 2.0"),
    (lambda: GEN(largest=0), "gen needs largest of at least 1"),
    (lambda: KNNDistance(k=0), "knn_distance needs k of at least 1"),
    (lambda: ViM(dim=-1), "vim needs dim of at least 0"),
    (lambda: NECO(variance=0.0), "neco needs variance above 0"),
    (lambda: NCI(alpha=-1.0), "nci needs alpha of at least 0"),
    (lambda: NNGuide(share=0.0), "nnguide needs a share above 0"),
    (lambda: Relation(power=0), "relation needs power of at least 1"),
    (lambda: ReAct(clip=90.0), "react needs clip between 0 and 1, not 90.0"),
    (lambda: VRA(low=0.9, high=0.5), "vra needs low below high"),
    (lambda: ASH(prune=1.0), "ash needs prune of at least 0 and below 1"),
    (lambda: DICE(keep=0.0), "dice needs keep above 0"),
    (
        lambda: Temperature().fit(TRAIN, CLASSES),
        "kept out of training, and there are none; train with holdout",
    ),
    (lambda: Temperature().score(TEST), "seen no held-out images"),
    (lambda: make_detector("rmds").state(), "has seen no training images"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_mistakes_are_named(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong()


@pytest.mark.parametrize("name", NEW)
def test_what_does_not_fit_is_refused(name: str) -> None:
    made = make_detector(name)
    if made.learns:
        with pytest.raises(UserError, match="seen no training images; call fit first"):
            made.score(TEST)
    made.fit(TRAIN, CLASSES, held_out=TEST)
    assert TEST.penultimate is not None
    assert TEST.logits is not None
    if made.learns and "penultimate" in made.needs | made.prefers:
        narrow = outputs_of(
            penultimate=TEST.penultimate[:, :4], logits=TEST.logits, head=(torch.ones(3, 4), torch.zeros(3))
        )
        with pytest.raises(UserError, match=r"have 4 dimensions.*use the same network for both"):
            made.score(narrow)
    bad = TEST.penultimate.clone()
    bad[2] = math.nan
    broken = Outputs(bad, TEST.labels, TEST.logits + bad[:, :1], penultimate=bad, head=TEST.head)
    with pytest.raises(UserError, match="of image 2 are not finite"):
        made.score(broken)
    if made.learns or made.uses_held_out:
        foreign = Outputs(bad, TEST.labels - 1, TEST.logits, penultimate=TEST.penultimate, head=TEST.head)
        with pytest.raises(UserError, match="has label -1; detectors learn from known images only"):
            make_detector(name).fit(foreign, CLASSES, held_out=foreign)
