"""``gradmix predict --out``: one row an input, in order, whatever happens on the way."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradmix.batch import Inputs, predict_batches, predict_file, predict_to_file, stream
from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.recognition import load
from tests.training.tiny import CLASSES

Refused = Callable[..., str]


def gradmix(*words: str | Path) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def mixed(photos: Path) -> Path:
    """36 readable images of three classes, and what one finds among them: four that are none."""
    (photos / "bar" / "00b.png").write_bytes(b"")
    (photos / "bar" / "03b.jpg").write_text("no image")
    whole = (photos / "disc" / "00.png").read_bytes()
    (photos / "disc" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (photos / "zz.png").symlink_to("nowhere.png")
    Image.new("RGBA", (50, 20), (200, 10, 10, 128)).save(photos / 'odd "name", of\n[one].png')
    return photos


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_MAX_IMAGES", 8)


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        return list(pq.read_table(file).to_pylist())
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(file.read_text())))
    for row in rows:
        row.update({name: value or None for name, value in row.items()})
        row |= {name: float(row[name]) if row[name] else None for name in ("score", "p_value")}
    return rows


@pytest.mark.usefixtures("small_batches")
def test_a_row_for_every_input_in_every_format(
    mixed: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("csv", "jsonl", "parquet"):
        assert gradmix("predict", run, mixed, mixed / "bar" / "00.png", "--out", f"a.{suffix}") == 0
        out, err = capsys.readouterr()
        assert out == f"a.{suffix}\n"
        assert "42 images: " in err
        assert ", 4 unreadable" in err
    rows = rows_of(Path("a.csv"))
    assert rows_of(Path("a.jsonl")) == rows
    assert rows_of(Path("a.parquet")) == rows
    assert {file.name for file in Path().glob("a.*")} == {"a.csv", "a.jsonl", "a.parquet"}
    inputs = Inputs.from_paths([mixed, mixed / "bar" / "00.png"])
    assert [row["file"] for row in rows] == [item.name for batch in inputs.batches(9) for item in batch]
    bad = {Path(row["file"]).name: row["error"] for row in rows if row["error"]}
    assert bad.keys() == {"00b.png", "03b.jpg", "cut.png", "zz.png"}
    assert bad["00b.png"] == "is empty (0 bytes)"
    assert bad["03b.jpg"] == "is not an image in a known format"
    assert bad["cut.png"].startswith("is damaged")
    assert "No such file" in bad["zz.png"]
    for row in rows:
        if row["error"]:
            assert row["label"] is row["nearest"] is row["score"] is None
        else:
            assert row["nearest"] in CLASSES
            assert row["label"] in (row["nearest"], "unknown")


def test_the_answers_are_those_of_the_recognizer(trained: Path, run: Path) -> None:
    recognizer = load(run)
    found = recognizer.predict(recognizer.read(trained / "test", trained / "others"))
    inputs = Inputs.from_paths([trained / "test", trained / "others"])
    rows = [row for batch in predict_batches(recognizer, inputs) for row in batch]
    assert [row.label for row in rows] == found.names()
    assert [row.score for row in rows] == pytest.approx(found.score.tolist(), abs=1e-6)


def test_lists_of_files(
    mixed: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = f"{mixed / 'bar' / '00.png'}\nnot there.png\n{mixed / 'bar'}\n\n"
    Path("files.txt").write_text(lines)
    assert gradmix("predict", run, "--list", "files.txt", "--out", "a.jsonl") == 0
    first, missing, folder = rows_of(Path("a.jsonl"))
    assert first["error"] is None
    assert "No such file" in missing["error"]
    assert "directory" in folder["error"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert gradmix("predict", run, "--list", "-", "--out", "b.jsonl") == 0
    assert Path("b.jsonl").read_bytes() == Path("a.jsonl").read_bytes()
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.splitlines()[0].encode())))
    assert gradmix("predict", "--list", "-", run, "--format", "jsonl") == 0
    assert json.loads(capsys.readouterr().out) == {k: v for k, v in first.items() if k != "error"}


class Stopped(Exception):
    """Stands for whatever ends the work."""


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_stopped_again_and_again_it_ends_in_the_same_bytes(mixed: Path, run: Path, suffix: str) -> None:
    """Here after each batch; tests/batch/test_killed_predict.py kills real processes at any moment."""

    def unreliable(*args: Any) -> Any:
        for number, rows in enumerate(predict_batches(*args)):
            if number == 1:
                raise Stopped
            yield rows

    whole, stopped = Path(f"whole.{suffix}"), Path(f"stopped.{suffix}")
    predict_to_file(run, Inputs.from_paths([mixed]), whole)
    stops = 0
    while not stopped.exists():
        try:
            summary = predict_to_file(run, Inputs.from_paths([mixed]), stopped, predictor=unreliable)
        except Stopped:
            stops += 1
    assert stops == 5  # of six batches
    assert summary.images == 41
    assert summary.resumed == 40
    assert summary.unreadable == 4
    assert stopped.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("small_batches")
def test_another_model_or_list_is_not_mixed_in(photos: Path, run: Path, refused: Refused) -> None:
    def stop(*args: Any) -> Any:
        yield next(predict_batches(*args))
        raise Stopped

    def begin() -> None:
        with pytest.raises(Stopped):
            predict_to_file(run, Inputs.from_paths([photos]), Path("a.csv"), force=True, predictor=stop)

    begin()
    (photos / "new.png").write_bytes((photos / "bar" / "00.png").read_bytes())
    line = refused("predict", run, photos, "--out", "a.csv")
    assert "a.csv.part was begun with another list of images; --force starts over" in line
    (photos / "new.png").unlink()
    before = (run / "model.safetensors").read_bytes()
    assert gradmix("forget", run, "--name", "disc") == 0
    assert "begun with another model" in refused("predict", run, photos, "--out", "a.csv")
    (run / "model.safetensors").write_bytes(before)
    assert gradmix("predict", run, photos, "--out", "a.csv") == 0
    assert len(rows_of(Path("a.csv"))) == 36
    assert "a.csv exists already; --force replaces it" in refused("predict", run, photos, "--out", "a.csv")
    assert gradmix("predict", run, photos / "bar", "--out", "a.csv", "--force") == 0
    assert len(rows_of(Path("a.csv"))) == 12


def test_a_model_that_changes_while_it_is_read(
    photos: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded_and_changed(file: Path, backbone: object = None) -> Any:
        found = load(file)
        assert gradmix("forget", run, "--name", "disc") == 0
        return found

    monkeypatch.setattr(predict_file, "load", loaded_and_changed)
    with pytest.raises(UserError, match=r"model.safetensors is being changed; run this again"):
        predict_to_file(run, Inputs.from_paths([photos]), Path("a.csv"))
    assert not list(Path().glob("a.csv*"))


def test_mistakes_are_one_line_and_leave_nothing(photos: Path, run: Path, refused: Refused) -> None:
    there = {*Path().rglob("*")}
    to_file = ("predict", run, photos, "--out")
    assert "no format '.txt'" in refused(*to_file, "a.txt")
    assert "did you mean '.csv'?" in refused(*to_file, "a.cvs")
    assert "needs a suffix: .csv, .jsonl, .parquet" in refused(*to_file, "answers")
    assert "there is no folder nowhere" in refused(*to_file, "nowhere/a.csv")
    assert "no such file or folder: nowhere" in refused("predict", run, "nowhere", "--out", "a.csv")
    assert "no model at" in refused("predict", "nowhere", photos, "--out", "a.csv")
    assert "give IMAGES or --list, not both" in refused("predict", run, photos, "--list", "files.txt")
    assert "--list files.txt cannot be read: No such file" in refused("predict", run, "--list", "files.txt")
    assert "--list '' cannot be read: No such file" in refused("predict", run, "--list", "")
    assert "give IMAGES or --list, not both" in refused("predict", run, photos, "--list", "")
    assert "--force goes with --out" in refused("predict", run, photos, "--force")
    assert "--ray goes with --out" in refused("predict", run, photos, "--ray")
    assert "the suffix says it" in refused(*to_file, "a.csv", "--format", "csv")
    assert "every image has a row" in refused(*to_file, "a.csv", "--skip-bad")
    assert {*Path().rglob("*")} == there


@pytest.mark.usefixtures("small_batches")
def test_printed_rows_come_as_they_are_made(
    mixed: Path, run: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    """A stream shows what it has before it stops at an unreadable image; a table is whole or not shown."""
    assert "00b.png is empty (0 bytes) (and 1 more); --skip-bad" in refused("predict", run, mixed / "bar")
    many = [*sorted((mixed / "square").glob("*.png")), mixed / "bar" / "00b.png"]
    assert gradmix("predict", run, *many, "--format", "csv") == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + 8  # the first batch
    assert "00b.png is empty" in err
    assert gradmix("predict", run, *many, "--format", "csv", "--skip-bad") == 0
    as_csv = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert gradmix("predict", run, *many, "--format", "jsonl", "--skip-bad") == 0
    out, err = capsys.readouterr()
    assert [list(map(str, json.loads(line).values())) for line in out.splitlines()] == as_csv[1:]
    assert "left out 1 unreadable images; the first:" in err


def test_reading_ahead_ends_with_its_reader(mixed: Path, run: Path) -> None:
    import threading

    before = threading.active_count()
    stream_of_answers = predict_batches(load(run), Inputs.from_paths([mixed] * 20))
    next(stream_of_answers)
    stream_of_answers.close()
    assert threading.active_count() == before
