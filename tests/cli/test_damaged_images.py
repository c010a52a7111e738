"""A damaged image of any kind costs its own row, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradmix.cli import main
from tests.cli.conftest import TINY
from tests.data.decoding.damage import damaged_avif


def gradmix(*words: str | Path) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def with_damage(photos: Path) -> Path:
    (photos / "bar" / "broken.avif").write_bytes(damaged_avif())
    return photos


def test_training_goes_on_without(with_damage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("train", with_damage, "--skip-bad", "--out", "new", *TINY, "--max-steps", "1") == 0
    assert "left out 1 unreadable" in capsys.readouterr().err
    assert gradmix("train", with_damage, "--out", "other", *TINY, "--max-steps", "1") == 2
    assert "broken.avif" in capsys.readouterr().err


def test_prediction_goes_on_without(with_damage: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("predict", run, with_damage / "bar", "--skip-bad", "--format", "csv") == 0
    assert "broken.avif" in capsys.readouterr().err
    assert gradmix("predict", run, with_damage / "bar", "--out", "rows.jsonl") == 0
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert len(rows) == len(list((with_damage / "bar").iterdir()))
    assert [row["file"].endswith("broken.avif") for row in rows if row["error"]] == [True]
