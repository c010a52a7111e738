"""The odds against "nothing has changed" are honest, and found where there is a change."""

from __future__ import annotations

import math
import random

import pytest
import torch

from gradmix.detection import KnownScores, Scores
from gradmix.detection.decision import Decision
from gradmix.detection.drift import ALARM, DriftTest, Jumper, format_odds
from gradmix.detection.logits import MLS


def make_test(held_out: torch.Tensor, labels: torch.Tensor | None = None, rate: float = 0.1) -> DriftTest:
    labels = torch.zeros(len(held_out), dtype=torch.int64) if labels is None else labels
    kept = KnownScores.of(Scores(held_out, labels), int(labels.max()) + 1)
    return DriftTest(Decision(MLS(), kept.threshold(rate), known=kept))


def slow_jumper(p_values: list[float], jump: float) -> float:
    """Compute the capital from its definition: the sum over all paths of rates, in a loop."""
    capital = {-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}
    for p in p_values:
        total = sum(capital.values())
        capital = {e: (1 - jump) * c + jump * total / 3 for e, c in capital.items()}
        capital = {e: c * (1 + e * (p - 0.5)) for e, c in capital.items()}
    return sum(capital.values())


def test_the_capital_is_that_of_the_definition() -> None:
    drawn = [random.Random(i).random() ** 2 for i in range(200)]
    for jump in (0.001, 0.01, 1.0):
        jumper = Jumper((jump,))
        for p in drawn:
            jumper.bet(p)
        assert jumper.log10 == pytest.approx(math.log10(slow_jumper(drawn, jump)), abs=1e-9)
    both, mean = Jumper((0.01, 1.0)), (slow_jumper(drawn, 0.01) + 1) / 2
    for p in drawn:
        both.bet(p)
    assert both.log10 == pytest.approx(math.log10(mean), abs=1e-9)
    assert slow_jumper([0.0], 0.5) == pytest.approx(1.0)  # fair: nothing is won before the rates differ


def test_the_ranks_are_among_all_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: held-out scores 0 … 8 at rate 0.2 have the threshold 1; those above it are 2 … 8."""
    seen: list[float] = []
    monkeypatch.setattr(Jumper, "bet", lambda _, p: seen.append(p))
    test = make_test(torch.arange(9.0), rate=0.2)
    monkeypatch.setattr(test._random, "random", lambda: 0.5)
    test.observe([0.5, 1.0, 1.5, 1.5, 99.0], [0] * 5)
    # 1.5 is below all 7; then equal to one of 8; 99 is above all 9.
    assert seen == [0.5 / 8, 0.5 * 2 / 9, 9.5 / 10]
    assert test.images == 3


def run(draws: int, images: int, shift: float, held_out: int = 60) -> int:
    """Return in how many of ``draws`` models the alarm was ever raised, with scores of two classes."""
    generator, alarms = torch.Generator().manual_seed(7), 0
    for _ in range(draws):
        labels = torch.arange(held_out) % 2
        scores = (torch.randn(held_out, generator=generator) * 3).round() + 4 * labels  # many are equal
        test = make_test(scores, labels)
        new = torch.arange(images) % 3 % 2  # another share of the classes than among the held-out ones
        drawn = (torch.randn(images, generator=generator) * 3).round() + 4 * new - shift
        test.observe(drawn.tolist(), new.tolist())
        alarms += test.alarm
    return alarms


def test_false_alarms_are_as_rare_as_ville_says() -> None:
    """At most 1 model in 100; of 300, more than 3 + 4 √3 = 9 would be a chance below 1 in 1,000."""
    assert ALARM == 100
    assert run(300, 120, 0.0) <= 9


def test_a_shift_is_found() -> None:
    assert run(20, 300, 3.0, held_out=300) >= 18


def test_more_images_of_one_class_are_no_change() -> None:
    generator = torch.Generator().manual_seed(8)
    labels = torch.arange(200) % 2
    test = make_test(torch.randn(200, generator=generator) + 10 * labels, labels)
    test.observe((torch.randn(500, generator=generator) + 10).tolist(), [1] * 500)
    assert not test.alarm


def test_a_bounded_number_of_scores_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmix.detection.drift._MOST_PER_CLASS", 50)
    generator, alarms = torch.Generator().manual_seed(9), 0
    for _ in range(40):
        test = make_test(torch.randn(30, generator=generator))
        test.observe(torch.randn(300, generator=generator).tolist(), [0] * 300)
        assert len(test._seen[0]) <= 50
        alarms += test.alarm
    assert alarms <= 3  # of 40; 0.4 are expected at most


def test_enrolled_classes_and_models_without_held_out_images() -> None:
    from gradmix.detection import EnrolledScores

    scores = Scores(torch.arange(40.0), torch.arange(40) % 2)
    own = {1: EnrolledScores(3, torch.tensor([1.0, 2.0]))}
    kept = KnownScores.of(scores, 2, enrolled=own)
    test = DriftTest(Decision(MLS(), kept.threshold(0.1), known=kept))
    test.observe([100.0] * 9, [1] * 9)
    assert test.images == 0
    assert test.describe() == "drift: no accepted image of a class with images to compare with"
    trained_on = KnownScores.of(scores, 2, held_out=False)
    test = DriftTest(Decision(MLS(), trained_on.threshold(0.1), known=trained_on))
    assert not any(len(seen) for seen in test._seen.values())
    assert DriftTest(Decision(MLS(), kept.threshold(0.1))).describe().startswith("drift: no accepted image")


def test_words() -> None:
    test = make_test(torch.randn(100, generator=torch.Generator().manual_seed(1)))
    test.observe([9.0], [0])
    assert test.describe() == "drift: no sign of it in 1 accepted images"
    test.observe([9.0 + i for i in range(300)], [0] * 300)
    assert test.alarm
    odds = format_odds(test.highest_log10)
    assert test.describe().startswith(f"drift: odds of {odds} to 1 that accepted images no longer look like")
