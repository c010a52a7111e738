"""What is said when all answers are there: false discoveries, another rate, drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradmix.batch import Inputs, predict_batches, predict_to_file, stream
from gradmix.batch.answer_formats import CSV, JSONL
from gradmix.batch.second_pass import control_file, read_answers
from gradmix.batch.stream import Answer, decide_at, describe_limit
from gradmix.cli import main
from gradmix.detection import control_false_discoveries
from gradmix.recognition import load
from tests.batch.test_predict_file import Refused, Stopped, rows_of

ODD = [
    Answer('odd "name", of\n[one].png', "a", "a", -1.5, None, 0.25),
    Answer("bad.png", None, None, None, "is empty (0 bytes)", None),
    Answer("c.png", "unknown", "b,c", 2.0, None, 1 / 3),
]


def gradmix(*words: str | Path) -> int:
    return main([str(word) for word in words])


@pytest.mark.parametrize("row_format", [CSV, JSONL])
def test_rows_are_read_as_they_were_written(row_format: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes((row_format.header + row_format.format_rows(ODD)).encode())
    assert list(read_answers(file, row_format)) == ODD
    # 0.25 <= 0.9 / 2 and 1/3 <= 0.9: both are unknown; the unreadable one does not count.
    assert control_file(file, tmp_path / "new", row_format, 0.9) == 2
    changed = [ODD[0]._replace(label="unknown"), ODD[1], ODD[2]]
    assert list(read_answers(tmp_path / "new", row_format)) == changed
    assert control_file(file, tmp_path / "new", row_format, 0.01) == 0
    assert [row.label for row in read_answers(tmp_path / "new", row_format)] == ["a", None, "b,c"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_false_discoveries_in_a_file_and_on_the_screen(
    trained: Path, run: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = (trained / "test", trained / "others")
    found = load(run).predict(load(run).read(*folders))
    for rate in (0.2, 0.6):
        out = Path(f"{rate}.{suffix}")
        assert gradmix("predict", run, *folders, "--fdr", rate, "--out", out) == 0
        unknown = control_false_discoveries(found.p_value, rate)
        rows = rows_of(out)
        assert [row["label"] == "unknown" for row in rows] == unknown.tolist()
        assert f": {int(unknown.sum())} unknown" in capsys.readouterr().err
        assert [row["p_value"] for row in rows] == pytest.approx(found.p_value.tolist(), abs=1e-12)
        assert not [*Path().glob(f"{rate}.{suffix}.*")]
        gradmix("predict", run, *folders, "--fdr", rate, "--format", "csv")
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "file,label,nearest,score,p_value"
        assert [line.split(",")[1] == "unknown" for line in shown[1:]] == unknown.tolist()
    assert bool(unknown.any())


def test_another_rate(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "model.safetensors").read_bytes()
    for rate in (0.05, 0.5):
        out = Path(f"{rate}.csv")
        assert gradmix("predict", run, trained / "test", "--false-reject", rate, "--out", out) == 0
        assert all((row["p_value"] <= rate) == (row["label"] == "unknown") for row in rows_of(out))
    assert (run / "model.safetensors").read_bytes() == before
    capsys.readouterr()
    for words in ((), ("--out", "few.csv")):
        assert gradmix("predict", run, trained / "test", "--false-reject", "0.0001", *words) == 0
        assert "(9999 would do): nothing is rejected" in capsys.readouterr().err


def test_false_discoveries_are_controlled_with_one_threshold_for_all(run: Path) -> None:
    per_class = load(run).recalibrate(per_class=True)
    assert not decide_at(per_class, None, 0.1).threshold.per_class
    assert decide_at(per_class, 0.3, None).threshold.per_class
    assert decide_at(per_class, None, None) is per_class
    assert describe_limit(load(run), 0.1) == ""
    assert "images cannot bound false discoveries by 0.001 (999 or more" in describe_limit(load(run), 0.001)


def test_explain_and_evaluate_take_a_rate(
    trained: Path, run: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    image = next((trained / "test").rglob("*.png"))
    found = load(run).predict(load(run).read(image))
    for rate in (0.05, 0.99):
        assert gradmix("explain", run, image, "--out", f"why{rate}", "--false-reject", rate) == 0
        unknown = bool(found.p_value[0] <= rate)
        assert (": unknown: most like" in capsys.readouterr().out) == unknown
    assert "between 0 and 1, not 3.0" in refused("explain", run, image, "--out", "no", "--false-reject", "3")
    assert not Path("no").exists()
    sets = ("--known", trained / "test", "--unknown", trained / "others", "--detector", "knn")
    known = load(run).predict(load(run).read(trained / "test"))
    assert gradmix("evaluate", run, *sets, "--out", "half", "--false-reject", 0.5) == 0
    accepted = int((known.p_value > 0.5).sum())
    assert f"({accepted} of {len(known.label)})" in capsys.readouterr().out


def test_mistakes(trained: Path, run: Path, refused: Refused) -> None:
    test = trained / "test"
    for wrong in ("0", "1", "nan"):
        assert "false_reject must lie between 0 and 1" in refused(
            "predict", run, test, "--false-reject", wrong
        )
        assert "fdr must lie between 0 and 1" in refused(
            "predict", run, test, "--fdr", wrong, "--out", "a.csv"
        )
    assert "not both" in refused("predict", run, test, "--fdr", "0.1", "--false-reject", "0.1")
    assert not Path("a.csv").exists()
    assert not Path("a.csv.part").exists()


def test_stopped_while_it_was_written_it_ends_in_the_same_bytes(
    trained: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_MAX_IMAGES", 8)
    inputs = Inputs.from_paths([trained / "test", trained / "others"])

    def unreliable(*args: Any) -> Any:
        for number, rows in enumerate(predict_batches(*args)):
            if number == 1:
                raise Stopped
            yield rows

    whole = predict_to_file(run, inputs, Path("whole.csv"), fdr=0.6)
    with pytest.raises(Stopped):
        predict_to_file(run, inputs, Path("a.csv"), fdr=0.6, predictor=unreliable)
    with pytest.raises(Exception, match="begun with another fdr"):
        predict_to_file(run, inputs, Path("a.csv"), fdr=0.5)

    def stop(*_: Any) -> int:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("gradmix.batch.predict_file.control_file", stop)
        with pytest.raises(Stopped):
            predict_to_file(run, inputs, Path("a.csv"), fdr=0.6)
    again = predict_to_file(run, inputs, Path("a.csv"), fdr=0.6)
    assert Path("a.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert (again.drift, again.unknown) == (whole.drift, whole.unknown)
    assert whole.drift.startswith("drift: ")
