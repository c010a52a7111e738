"""The cache stays below its limit, and what is in use stays longest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradmix.data.cache import contents
from gradmix.data.cache.contents import cache_limit, make_room, mark_used
from gradmix.errors import UserError


def entry(folder: Path, name: str, size: int, used: float) -> Path:
    file = folder / name
    file.write_bytes(b"x" * size)
    os.utime(file, (used, used))
    return file


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    old, older, new = (entry(tmp_path, n, 10, t) for n, t in (("old", 200), ("older", 100), ("new", 300)))
    make_room(tmp_path, 30)
    assert older.exists()
    make_room(tmp_path, 20)
    assert (old.exists(), older.exists(), new.exists()) == (True, False, True)
    mark_used(old)
    make_room(tmp_path, 10)
    assert (old.exists(), new.exists()) == (True, False)


def test_a_large_entry_does_not_drive_out_the_small_ones(tmp_path: Path) -> None:
    large, small = entry(tmp_path, "large", 100, 200), entry(tmp_path, "small", 10, 100)
    make_room(tmp_path, 50)
    assert (large.exists(), small.exists()) == (False, True)


def test_what_a_killed_process_left_goes_and_what_is_being_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents.time, "time", lambda: 10_000.0)
    left = entry(tmp_path, ".a.safetensors.xyz.part", 10, 1_000.0)
    writing = entry(tmp_path, ".b.safetensors.xyz.part", 10, 9_999.0)
    make_room(tmp_path, 0)
    assert (left.exists(), writing.exists()) == (False, True)


def test_no_folder_is_no_error(tmp_path: Path) -> None:
    make_room(tmp_path / "none", 0)
    mark_used(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("given", ["lots", "-1", "nan", "inf"])
def test_the_limit_is_a_number(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_CACHE_GB", given)
    with pytest.raises(UserError, match=f"must be a number of gigabytes, not '{given}'"):
        cache_limit()
    monkeypatch.setenv("GRADMIX_CACHE_GB", "0.5")
    assert cache_limit() == 2**29
