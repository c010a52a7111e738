from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradmix.data import KNOWN_SETS, load_images
from gradmix.data.inspection import Finding, check_data, describe_data, list_data


def kinds(findings: tuple[Finding, ...], kind: str) -> list[Finding]:
    return [finding for finding in findings if finding.kind == kind]


def test_list_names_what_is_there_and_what_is_not(tmp_path: Path, save_image: Callable[..., None]) -> None:
    for i in range(4):
        save_image(tmp_path / "tiny-imagenet" / "train" / f"n{i}" / "images" / "0.JPEG")
    (tmp_path / "tiny-imagenet" / "wnids.txt").write_text("n0 n1 n2 n3")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train.parquet").write_bytes(b"junk")
    listings = {listing.name: listing for listing in list_data(tmp_path)}
    assert listings.keys() == KNOWN_SETS.keys()
    assert listings["tiny-imagenet"].splits == (("train", 4),)
    assert listings["tiny-imagenet"].format == "tiny-imagenet-200"
    assert listings["svhn"].path is None
    assert "train.parquet" in listings["mnist"].trouble


def test_info_is_what_load_images_gives(photos: Path) -> None:
    (found,) = describe_data(photos)
    assert found.split == "all"
    assert found.shape == (3, 8, 8)
    assert found.counts == {"cat": 3, "dog": 3}
    assert found.images == 6
    assert found.hash == load_images(photos).content_hash()


def test_a_clean_folder(tmp_path: Path, save_image: Callable[..., None]) -> None:
    for name in ("cat", "dog"):
        for i in range(10):
            save_image(tmp_path / "zoo" / name / f"{i}.png")
    report = check_data(tmp_path / "zoo")
    assert report.findings == ()
    assert not report.broken
    assert report.images == {"all": 20}


def test_broken_and_doubtful_images_are_found(photos: Path, save_image: Callable[..., None]) -> None:
    (photos / "cat" / "empty.png").touch()
    (photos / "dog" / "text.png").write_text("no image")
    shutil.copy(photos / "cat" / "0.png", photos / "cat" / "again.png")
    shutil.copy(photos / "cat" / "1.png", photos / "dog" / "cat.png")
    save_image(photos / "dog" / "long.png", 8, 80)
    save_image(photos / "dog" / "speck.png", 2, 2)
    report = check_data(photos)
    assert report.broken
    unreadable = [Path(finding.where).name for finding in kinds(report.findings, "unreadable")]
    assert unreadable == ["empty.png", "text.png"]
    assert [f.where for f in kinds(report.findings, "odd size")] == ["dog/long.png", "dog/speck.png"]
    assert [f.where for f in kinds(report.findings, "few images")] == ["cat", "dog"]
    (duplicate,) = kinds(report.findings, "duplicate")
    assert {duplicate.where, duplicate.what.split()[-1]} == {"cat/0.png", "cat/again.png"}
    (conflict,) = kinds(report.findings, "in two classes")
    assert conflict.where == "cat/1.png"
    assert "dog/cat.png" in conflict.what


def test_a_test_image_among_the_training_images_is_found(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (4, 5, 5), np.uint8)
    np.savez(tmp_path / "a.npz", x_train=pixels, y_train=[0, 0, 1, 1], x_test=pixels[2:3], y_test=[1])
    (leak,) = kinds(check_data(tmp_path / "a.npz").findings, "in two splits")
    assert leak.where == "a.npz#2"


def test_what_cannot_be_read_at_all_is_a_finding(photos: Path) -> None:
    (photos / "eel").mkdir()
    report = check_data(photos)
    assert report.broken
    assert report.images == {}
    assert "eel has no images" in report.findings[0].what


def test_check_looks_past_the_cache(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradmix.data.cache import decode_cache

    monkeypatch.setattr(decode_cache, "_SECONDS_WORTH_KEEPING", -1.0)
    load_images(photos)
    file = photos / "cat" / "0.png"
    times = file.stat()
    content = bytearray(file.read_bytes())
    content[60:120] = bytes(60)  # same length and, below, same time: as a failing disk would have it
    file.write_bytes(bytes(content))
    import os

    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert check_data(photos).broken
