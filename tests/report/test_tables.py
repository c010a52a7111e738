from __future__ import annotations

import pytest

from gradmix.report import markdown_table
from gradmix.report.tables import format_percent


def test_numbers_are_aligned_right_and_pipes_escaped() -> None:
    lines = markdown_table(
        ["class", "n", "AUROC"], [["a|b", 3, 0.5], ["c\nd", None, float("nan")]]
    ).splitlines()
    assert lines == [
        "| class |   n | AUROC |",
        "|-------|----:|------:|",
        "| a\\|b  |   3 | 0.500 |",
        "| c d   |   – |     – |",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert markdown_table(["a", "b"], []).splitlines() == ["| a   | b   |", "|-----|-----|"]


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0"), (0.99999, "99.9"), (1.0, "100"), (0.5, "50.0")])
def test_percent(share: float, text: str) -> None:
    assert format_percent(share) == text
