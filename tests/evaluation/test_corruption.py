"""Drops of accuracy against a loop, and the evaluation on a classifier whose answers are known."""

from __future__ import annotations

import pytest
import torch

from gradmix.data.corruptions import corrupt
from gradmix.errors import UserError
from gradmix.evaluation.corruption import (
    CorruptionResult,
    accuracy_drop,
    drop_by_severity,
    drop_by_type,
    evaluate_corruption,
)


def test_means_are_those_of_a_loop() -> None:
    accuracy = torch.rand(15, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drop = accuracy_drop(0.9, accuracy)
    for c in range(15):
        by_hand = sum(0.9 - float(accuracy[c, s]) for s in range(5)) / 5
        assert float(drop_by_type(drop)[c]) == pytest.approx(by_hand)
    for s in range(5):
        by_hand = sum(0.9 - float(accuracy[c, s]) for c in range(15)) / 15
        assert float(drop_by_severity(drop)[s]) == pytest.approx(by_hand)


def test_a_table_by_name() -> None:
    result = CorruptionResult(0.9, {"fog": [0.8, 0.7], "snow": [0.9, 0.5]})
    assert result.by_type == pytest.approx({"fog": 0.15, "snow": 0.2})
    assert result.by_severity == pytest.approx([0.05, 0.3])
    assert result.drop.shape == (2, 2)


def test_evaluation_sees_every_corrupted_set_in_order() -> None:
    images = torch.randint(0, 256, (3, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)

    def brightness_of(batch: torch.Tensor) -> float:
        return float(batch.double().mean()) / 255

    result = evaluate_corruption(
        brightness_of(images),
        lambda name, severity: brightness_of(corrupt(images, name, severity, seed=3)),
        ["brightness", "contrast"],
    )
    assert result.clean == brightness_of(images)
    assert list(result.accuracy) == ["brightness", "contrast"]
    for name, row in result.accuracy.items():
        assert list(row) == [brightness_of(corrupt(images, name, s, seed=3)) for s in range(1, 6)]


def test_a_misspelt_name_is_told_before_any_work() -> None:
    def never(name: str, severity: int) -> float:
        raise AssertionError("must not be asked")

    with pytest.raises(UserError, match="did you mean 'snow'"):
        evaluate_corruption(0.9, never, ["fog", "snwo"])


@pytest.mark.parametrize("table", [{}, {"fog": []}, {"fog": [0.1, 0.2], "snow": [0.1]}])
def test_incomplete_tables_are_refused(table: dict[str, list[float]]) -> None:
    with pytest.raises(UserError):
        CorruptionResult(0.5, table)
