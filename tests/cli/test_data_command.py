from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.cli import data as command
from gradmix.errors import UserError
from gradmix.files import try_lock


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog [old]"):  # brackets are markup to rich, and must be shown as they are
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            image = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
            image.save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def gradmix_data(*words: str) -> int:
    parser = argparse.ArgumentParser(prog="gradmix data")
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_list(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos.rename(photos.parent / "mini-imagenet")
    assert gradmix_data("list", "--data-root", str(photos.parent)) == 0
    out = capsys.readouterr().out
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}
    assert "24" in rows["mini-imagenet"]
    assert "not there" in rows["cifar10"]


def test_info(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix_data("info", str(photos)) == 0
    out = capsys.readouterr().out
    for part in ("folder of class folders", "3 x 8 x 8", "dog [old]", "12", "24"):
        assert part in out


def test_info_shortens_long_lists_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.arange(50)
    np.savez(tmp_path / "a.npz", images=np.zeros((50, 2, 2), np.uint8), labels=labels)
    gradmix_data("info", str(tmp_path / "a.npz"))
    assert "30 more classes" in capsys.readouterr().out
    gradmix_data("info", str(tmp_path / "a.npz"), "--all")
    assert "more classes" not in capsys.readouterr().out


def test_check_exits_with_1_when_something_is_broken(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gradmix_data("check", str(photos)) == 0
    assert "usable (nothing to complain about)" in capsys.readouterr().out
    (photos / "cat" / "0.png").write_bytes(b"")
    assert gradmix_data("info", str(photos)) == 0
    assert "23 (and 1 unreadable)" in capsys.readouterr().out
    assert gradmix_data("check", str(photos)) == 1
    out = capsys.readouterr().out
    assert "cat/0.png" in "".join(out.split())
    assert "broken (unreadable: 1)" in out


def test_mistakes_are_the_users_business(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        gradmix_data("info", "cifar1o")
    with pytest.raises(SystemExit):
        gradmix_data("chek", "x")


@pytest.mark.parametrize("way", ["list", "info", "check"])
def test_help_has_an_example(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gradmix_data(way, "--help")
    out = capsys.readouterr().out
    assert f"example: gradmix data {way}" in out
    assert "--data-root" in out


def test_help_does_not_wait_for_torch() -> None:
    probe = "import sys, argparse, gradmix.cli.data as d; d.add_arguments(argparse.ArgumentParser())"
    asked = f"{probe}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr


def test_corrupt_makes_a_sheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save(tmp_path / "a.png")
    sheet = tmp_path / "sheet.png"
    assert gradmix_data("corrupt", str(tmp_path / "a.png"), "--size", "16", "--out", str(sheet)) == 0
    assert capsys.readouterr().out == f"{sheet} (frost: generated)\n"
    width, height = Image.open(sheet).size
    assert width >= 18 * 16
    assert height >= 5 * 16
    first = sheet.read_bytes()
    gradmix_data("corrupt", str(tmp_path / "a.png"), "--size", "16", "--out", str(sheet))
    assert sheet.read_bytes() == first


def test_corrupt_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        gradmix_data("corrupt", str(tmp_path / "none.png"))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match="no folder of frost pictures"):
        gradmix_data("corrupt", str(tmp_path / "a.png"), "--frost", str(tmp_path / "frost"))


def test_cache_is_shown_and_cleared_and_nothing_else(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache/decoded").mkdir(parents=True)
    (tmp_path / "cache/decoded/0123.safetensors").write_bytes(bytes(2**24))
    (tmp_path / "cache/cifar10").mkdir()  # somebody's data set in the same folder
    capsys.readouterr()
    assert gradmix_data("cache") == 0
    shown = {line.split("  ")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert " 1 " in shown["images of small folders, decoded"]
    assert "unbounded" in shown["archives, unpacked"]
    assert gradmix_data("cache", "--clear") == 0
    assert capsys.readouterr().out == "freed 0.02 GB\n"
    left = {p.relative_to(tmp_path / "cache").as_posix() for p in (tmp_path / "cache").rglob("*")}
    assert left == {"cifar10", "decoded"}


def test_what_is_being_filled_is_not_cleared(tmp_path: Path) -> None:
    pixels = tmp_path / "cache/pixels"
    for name in ("done", ".done.part", ".half.part"):
        (pixels / name).mkdir(parents=True)
    with try_lock(pixels / ".half.lock"):
        assert gradmix_data("cache", "--clear") == 0
        assert {p.name for p in pixels.iterdir()} == {".half.part", ".half.lock", ".done.lock"}
    assert gradmix_data("cache", "--clear") == 0
    assert {p.name for p in pixels.iterdir()} == {".half.lock", ".done.lock"}


def test_check_refuses_what_train_refuses(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trouble in turn: both commands, the same words."""
    from gradmix.cli import main

    monkeypatch.chdir(photos.parent)

    def refused(reason: str, *words: str) -> None:
        capsys.readouterr()
        assert gradmix_data("check", str(photos), *words) == 1
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "cannot be trained: 1" in said
        assert main(["train", str(photos), "--out", "run", *words]) == 2
        assert reason in capsys.readouterr().err
        assert reason[:30] in said  # the rest is on the next lines of a narrow table
        assert not Path("run").exists()

    for i in range(4, 12):
        (photos / "cat" / f"{i}.png").unlink()
    (photos / "cat" / "3.png").unlink()
    assert gradmix_data("check", str(photos)) == 0  # three images and three neighbours
    (photos / "cat" / "2.png").unlink()
    refused("class 'cat' has 2 training images, fewer than k = 3 neighbours")
    Path("my.yaml").write_text("base: small\nk: 2\n")
    assert gradmix_data("check", str(photos), "--recipe", "my.yaml") == 0
    Path("my.yaml").write_text("base: small\nk: 2\nholdout: 0.6\n")
    refused("class 'cat' has 1 training images after 1 were held out", "--recipe", "my.yaml")
    (photos / "cat").rename(photos / "unknown")
    Path("my.yaml").write_text("base: small\nk: 2\n")
    refused("no class can be called 'unknown'", "--recipe", "my.yaml")


def test_check_knows_that_val_sets_the_threshold(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos.rename(photos.parent / "train")
    photos.mkdir()
    (photos.parent / "train").rename(photos / "train")
    (photos / "val" / "other").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(photos / "val" / "other" / "0.png")
    assert gradmix_data("check", str(photos)) == 1
    assert "no folder of val/ has the name" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    (photos / "val" / "other").rename(photos / "val" / "cat")
    for i in range(3, 12):  # three are left, none of which is held out
        (photos / "train" / "cat" / f"{i}.png").unlink()
    recipe = photos.parent / "my.yaml"
    recipe.write_text("base: small\nholdout: 0.5\n")
    assert gradmix_data("check", str(photos), "--recipe", str(recipe)) == 0
