from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gradmix.data import BadImage, cache_root, load_images
from gradmix.data.cache import decode_cache
from gradmix.data.cache.decode_cache import decode_cached
from gradmix.data.decoding import Decoded


@pytest.fixture(autouse=True)
def everything_is_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_cache, "_SECONDS_WORTH_KEEPING", -1.0)


class Counting:
    """A decoder that counts how often it had to work."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Decoded:
        self.calls += 1
        pixels = torch.arange(12, dtype=torch.uint8).view(1, 3, 2, 2)
        return Decoded(pixels, torch.tensor([1]), (BadImage("a#0", "is damaged"),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"first")
    return path


def entries() -> list[Path]:
    return sorted((cache_root() / "decoded").iterdir())


def test_the_second_time_comes_from_the_cache(file: Path) -> None:
    work = Counting()
    first, second = (decode_cached([file], "a", work) for _ in range(2))
    assert work.calls == 1
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.kept, second.kept)
    assert first.bad == second.bad
    assert len(entries()) == 1


def test_other_files_and_other_ways_are_other_entries(file: Path, tmp_path: Path) -> None:
    work = Counting()
    decode_cached([file], "a", work)
    decode_cached([file], "b", work)
    os.utime(file, ns=(1, 1))
    decode_cached([file], "a", work)
    file.write_bytes(b"second")
    decode_cached([file], "a", work)
    other = tmp_path / "other.parquet"
    other.write_bytes(b"second")
    decode_cached([other], "a", work)
    assert work.calls == 5


def test_fresh_looks_at_the_files(file: Path) -> None:
    work = Counting()
    decode_cached([file], "a", work)
    decode_cached([file], "a", work, fresh=True)
    assert work.calls == 2


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\xff" * 64])
def test_a_damaged_entry_is_written_anew(file: Path, content: bytes) -> None:
    work = Counting()
    decode_cached([file], "a", work)
    entries()[0].write_bytes(content)
    assert decode_cached([file], "a", work).images.shape == (1, 3, 2, 2)
    decode_cached([file], "a", work)
    assert work.calls == 2


def test_a_cache_that_cannot_be_written_is_no_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_CACHE", str(file))  # a file where a folder is needed
    assert decode_cached([file], "a", Counting()).images.shape == (1, 3, 2, 2)


def test_quick_work_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_cache, "_SECONDS_WORTH_KEEPING", 60.0)
    decode_cached([file], "a", Counting())
    assert not cache_root().exists()


def test_a_folder_read_from_the_cache_is_the_same_and_sees_changes(photos: Path) -> None:
    first, second = load_images(photos), load_images(photos)
    assert first.content_hash() == second.content_hash()
    assert first.sources == second.sources
    assert len(entries()) == 1
    assert not [path for path in photos.rglob("*") if path.suffix != ".png" and path.is_file()]
    (photos / "cat" / "0.png").write_bytes((photos / "dog" / "0.png").read_bytes())
    assert load_images(photos).content_hash() != first.content_hash()
