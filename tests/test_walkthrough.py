"""The walk-through goes the whole way, at small size, on real photos."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "walkthrough.py"


@pytest.mark.slow
@pytest.mark.skipif("GRADMIX_DATA" not in os.environ, reason="GRADMIX_DATA does not say where the data is")
def test_the_whole_way(tmp_path: Path) -> None:
    out = tmp_path / "walk"
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--size", "small"]
    environment = os.environ | {"GRADMIX_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    print(done.stdout)

    summary = dict(re.findall(r"^(\S.*?) {2,}(\d+)(?:\.\d %| of \d+)$", done.stdout, re.MULTILINE))
    found = {what: int(value) for what, value in summary.items()}
    assert found["AUROC, known against unknown"] > 90  # 97 when written; 50 is chance
    assert found["known photos: right class, if nothing is rejected"] > 90  # 98; of four classes
    assert found["known photos called unknown"] < 60  # 30 of 200; one in ten was allowed, on average
    assert found["unknown photos called unknown"] > 100  # 145 of 150
    assert found["brain-coral recognised, before it was taught"] == 0
    assert found["brain-coral recognised, after"] > 25  # 45 of 50
    assert found["brain-coral recognised, when it was forgotten"] == 0
    assert "gives the same answers" in done.stdout

    written = (
        "run/model.safetensors run/report.html run/evaluation.json why/explain.html model/model.safetensors"
    )
    for name in [
        *written.split(),
        "exported/model.onnx",
        "before.csv",
        "after.csv",
        "forgotten.csv",
        "groups/groups.json",
    ]:
        assert (out / name).stat().st_size, name
    assert json.loads((out / "run/run.json").read_text())["command"].startswith("gradmix train photos/")


@pytest.mark.parametrize(
    ("options", "trouble"),
    [(["--out", "there"], "there exists already"), (["--out", "walk", "--data", "there"], "tiny-imagenet")],
)
def test_what_cannot_be_done_is_said_in_a_line(
    options: list[str],
    trouble: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    assert runpy.run_path(str(SCRIPT), run_name="walkthrough")["main"]() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert trouble in err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]  # nothing was begun
