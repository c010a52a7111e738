"""The network alone, extraction and the cache, on the same images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradmix.bench.extract import AGAIN, BARE, OURS, bench_extract


def test_three_contestants_and_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    rows = bench_extract("resnet8_16", "half", 16, images=40, rounds=1)
    assert [row.name for row in rows] == [BARE, OURS, AGAIN]
    assert rows[0].ratio == 1.0
    assert os.environ["GRADMIX_CACHE"] == str(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
