"""calibrate, explain, enroll, forget, discover: from the command line, and every mistake in one line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.detection import Threshold
from gradmix.recognition import load, save
from tests.cli.conftest import save_shapes
from tests.training.tiny import CLASSES

Refused = Callable[..., str]


def gradmix(*words: str | Path) -> int:
    return main([str(word) for word in words])


def test_calibrate_rewrites_the_threshold(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("calibrate", run, "--false-reject", "0.3") == 0
    out, err = capsys.readouterr()
    assert "from 9 held-out known images" in out
    assert "at most 30 % of known images rejected on average" in out
    assert err == ""
    t = load(run).threshold
    assert (t.false_reject, t.n, t.promised, t.per_class) == (0.3, 9, True, False)
    assert gradmix("calibrate", run / "model.safetensors", "--per-class") == 0  # the rate stays
    out = capsys.readouterr().out
    assert "bar: " in out
    t = load(run).threshold
    assert (t.false_reject, t.per_class, len(t.by_class)) == (0.3, True, 3)
    assert gradmix("calibrate", run, "--no-per-class") == 0
    assert load(run).threshold.by_class == ()


def test_calibrate_on_new_images(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("calibrate", run, "--false-reject", "0.1", "--images", trained / "test") == 0
    assert "from 12 held-out known images" in capsys.readouterr().out
    assert load(run).threshold.n == 12
    assert gradmix("calibrate", run, "--images", trained / "photos") == 0
    assert "27 of the 36 calibration images seem to be among the images" in capsys.readouterr().err


def test_calibrate_says_when_nothing_was_held_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(replace(load(run), calibration=None), run / "model.safetensors")
    assert gradmix("calibrate", run) == 0
    out, err = capsys.readouterr()
    assert "from 27 training images, each left out in turn" in out
    assert "at most" not in out
    assert "note: no images were held out" in err


def test_calibrate_refuses_what_cannot_be_promised(run: Path, trained: Path, refused: Refused) -> None:
    before = (run / "model.safetensors").read_bytes()
    line = refused("calibrate", run, "--false-reject", "0.01")
    assert "9 images cannot bound false rejects by 0.01, 99 would do; the lowest rate they allow is 0.1;" in (
        line
    )
    assert "between 0 and 1, not 2.0" in refused("calibrate", run, "--false-reject", "2")
    assert "invalid float value" in refused("calibrate", run, "--false-reject", "few")
    assert "'nowhere'" in refused("calibrate", run, "--images", "nowhere")
    foreign = save_shapes(Path("foreign"), ("bar", "cross"), 2)
    assert "class 'cross' of the calibration images is not known" in refused(
        "calibrate", run, "--images", foreign
    )
    assert "no model at nowhere" in refused("calibrate", "nowhere")
    assert (run / "model.safetensors").read_bytes() == before


def test_enroll_and_forget(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crosses = trained / "others" / "cross"
    assert gradmix("enroll", run, "--name", "cross", crosses / "00.png", crosses / "01.png") == 0
    note = (
        "note: up to 10.0% of the images of other classes may go over to an enrolled one: the model has 9 "
        "held-out images; 49 would make it 2%\n"
    )
    assert capsys.readouterr().out == "cross: 2 images; the model knows 4 classes\n" + note
    assert load(run).class_names == (*CLASSES, "cross")
    assert gradmix("enroll", run, "--name", "cross", "--add", crosses / "02.png") == 0
    assert capsys.readouterr().out == "cross: 3 images; the model knows 4 classes\n" + note
    assert load(run).gallery.sources[-1] == str(crosses / "02.png")
    assert gradmix("forget", run, "--name", "cross") == 0
    assert capsys.readouterr().out == "cross is forgotten; the model knows 3 classes\n"
    assert load(run).class_names == CLASSES


def test_forget_says_when_nothing_is_rejected_any_more(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("calibrate", run, "--false-reject", "0.12") == 0
    capsys.readouterr()
    assert gradmix("forget", run, "--name", "disc") == 0
    out, err = capsys.readouterr()
    assert out == "disc is forgotten; the model knows 2 classes\n"
    assert "note: 6 images cannot bound false rejects by 0.12 (8 would do): nothing is rejected;" in err
    assert len(err.splitlines()) == 1


def test_calibrate_and_explain_count_what_they_leave_out(
    trained: Path, run: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    folder = Path(shutil.copytree(trained / "test", "test"))
    (folder / "bar" / "bad.png").write_text("no image")
    assert "bad.png" in refused("calibrate", run, "--images", folder)
    assert gradmix("calibrate", run, "--images", folder, "--skip-bad") == 0
    out, err = capsys.readouterr()
    assert "from 12 held-out known images" in out
    assert "bad.png" in err
    assert "--skip-bad goes with --images" in refused("calibrate", run, "--skip-bad")
    assert gradmix("explain", run, folder / "bar", "--out", "why", "--skip-bad") == 0
    assert capsys.readouterr().err.splitlines()[-1] == "left out 1 unreadable images"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_names_that_are_not_utf8(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd").mkdir()
    for i in range(4):
        name = os.fsdecode(b"odd/gr\xfcn %d.png" % i)
        shutil.copy(trained / "others" / "cross" / f"0{i}.png", name)
    assert gradmix("explain", run, "odd", "--out", "why") == 0
    assert r"odd/gr\udcfcn 0.png: " in capsys.readouterr().out
    data = json.loads(Path("why/explain.json").read_text(encoding="utf-8"))["images"]
    assert Path(data[0]["source"]).is_file()
    assert r"gr\udcfcn 0.png" in Path("why/explain.html").read_text(encoding="utf-8")
    model = run / "model.safetensors"
    save(load(run).with_threshold(Threshold(1e9, 0.2, 9, guaranteed=True)), model)  # rejects all
    assert gradmix("discover", run, "odd", "--out", "groups", "--min-size", "2") == 0
    assert gradmix("enroll", run, "--name", "novel", "--group", "groups/1") == 0


def test_enroll_and_forget_refuse(trained: Path, run: Path, refused: Refused) -> None:
    before = (run / "model.safetensors").read_bytes()
    crosses = trained / "others" / "cross"
    assert "knows a class 'bar' already" in refused("enroll", run, "--name", "bar", crosses)
    assert "IMAGES" in refused("enroll", run, "--name", "cross")
    assert "not both" in refused("enroll", run, "--name", "cross", crosses, "--group", crosses)
    assert "is not a group of 'gradmix discover'" in refused("enroll", run, "--name", "x", "--group", crosses)
    assert "no such file or folder: nowhere.png" in refused("enroll", run, "--name", "x", "nowhere.png")
    assert "no class can be called 'unknown'" in refused("enroll", run, "--name", "unknown", crosses)
    assert "--name" in refused("enroll", run, crosses)
    Path("bad.png").write_text("no image")
    assert "bad.png" in refused("enroll", run, "--name", "x", crosses, "bad.png")
    assert "did you mean 'disc'" in refused("forget", run, "--name", "disk")
    assert "no model at nowhere" in refused("forget", "nowhere", "--name", "disc")
    assert (run / "model.safetensors").read_bytes() == before
    assert gradmix("enroll", run, "--name", "x", crosses, "bad.png", "--skip-bad") == 0


def test_discover_name_and_enroll(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = run / "model.safetensors"
    save(load(run).with_threshold(Threshold(1e9, 0.2, 9, guaranteed=True)), model)  # rejects all
    words = (trained / "test", trained / "others", "--out", "groups", "--min-size", "2")
    assert gradmix("discover", run, *words) == 0
    out, err = capsys.readouterr()
    assert "0 of 18 images are known" in err
    listing = json.loads(Path("groups/groups.json").read_text())
    assert len(out.splitlines()) == len(listing["groups"]) >= 1
    in_groups = [file for group in listing["groups"] for file in group["files"]]
    assert len(in_groups) + len(listing["left_over"]) == 18
    first = listing["groups"][0]
    assert json.loads(Path("groups/1/group.json").read_text()) == first
    assert Path("groups/1/sheet.png").read_bytes().startswith(b"\x89PNG")
    assert all(Path(file).is_absolute() for file in in_groups)
    assert {path.name for path in Path().glob(".groups*")} == set()
    assert gradmix("enroll", run, "--name", "novel", "--group", "groups/1") == 0
    assert f"novel: {first['images']} images" in capsys.readouterr().out


def test_discover_refuses(trained: Path, run: Path, refused: Refused) -> None:
    Path("there").mkdir()
    assert "there exists already" in refused("discover", run, trained / "others", "--out", "there")
    assert "no folder none" in refused("discover", run, trained / "others", "--out", "none/groups")
    assert "at least 2 images" in refused(
        "discover", run, trained / "others", "--out", "g", "--min-size", "1"
    )
    assert "no model at nowhere" in refused("discover", "nowhere", trained / "others", "--out", "g")
    assert not Path("g").exists()


def test_explain_writes_pictures_a_page_and_data(
    trained: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = trained / "test" / "bar" / "00.png", trained / "others" / "cross" / "00.png"
    assert gradmix("explain", run, one, other, "--out", "why/here", "--neighbours", "2") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == str(Path("why/here/explain.html"))
    assert out[0].startswith(f"{one}: ")
    files = sorted(path.name for path in Path("why/here").iterdir())
    assert files == ["001-00.png", "002-00.png", "explain.html", "explain.json"]
    data = json.loads(Path("why/here/explain.json").read_text())["images"]
    assert [image["source"] for image in data] == [str(one), str(other)]
    for image in data:
        assert image["known"] == (image["label"] != "unknown")
        assert len(image["classes"]) == 3
        assert all(len(c["neighbours"]) == 2 for c in image["classes"])
        assert image["classes"][0]["neighbours"][0]["source"].endswith(".png")
        assert len(image["heat"]) == 16
    page = Path("why/here/explain.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/png") == 2 * (2 + 3 * 2)


def test_explain_refuses(trained: Path, run: Path, refused: Refused) -> None:
    image = trained / "test" / "bar" / "00.png"
    assert "no such file or folder: nowhere.png" in refused("explain", run, "nowhere.png", "--out", "why")
    assert "at least 1 class" in refused("explain", run, image, "--out", "why", "--classes", "0")
    assert "--out" in refused("explain", run, image)
    assert not Path("why").exists()


def test_train_with_the_recipe_that_trains_nothing(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--recipe", "frozen", "--image-size", "16", "--encoder", "resnet8_16", "--holdout", "0.25")
    assert gradmix("train", photos, "--out", "new", *words, "--false-reject", "0.2") == 0
    assert "recipe frozen without trained weights" in capsys.readouterr().err
    assert gradmix("predict", "new", photos / "bar", "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 13
    assert load("new").network.feature_dim == 64  # the encoder's own features


def test_a_finished_run_keeps_what_was_changed_since(
    run: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forget", str(run), "--name", "bar"]) == 0
    before = (run / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(run)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{run / 'model.safetensors'}\n"
    assert "is finished; delete model.safetensors in it to have it made again" in err
    assert (run / "model.safetensors").read_bytes() == before
