"""The benchmarks as commands: what they print, what they leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmix.bench import quality
from gradmix.cli import main
from tests.data.readers.test_raw_formats import idx

RECIPE = """base: cpu/mnist
encoder: resnet8_16
batch_size: 16
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """gradmix bench quality on a tiny MNIST, four steps per contestant."""
    folder, rng = tmp_path / "data" / "mnist", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, each in (("train", 8), ("t10k", 3)):
        labels = np.arange(10, dtype=np.uint8).repeat(each)
        pixels = rng.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.setattr(quality, "measure_step_seconds", lambda recipes, data: dict.fromkeys(recipes, 15.0))
    words = ["--protocol", "mnist", "--recipe", "tiny.yaml", "--data-root", "data", "--out", "out"]
    return ["bench", "quality", *words, "--minutes", "1", "--points", "2"]


def test_quality_draws_what_it_prints(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--arm", "ce", "--arm", "gradmix"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[-3] for line in out.splitlines() if "ce + mls" in line] == ["2", "4"]
    assert "+ GradMix" in out
    assert "CutMix" not in out
    assert out.splitlines()[-1] == "out/auroc.svg"
    svg = Path("out/auroc.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg ")
    assert "minutes of training" in svg
    assert "GradMix" in svg


def test_quality_can_be_stopped_and_goes_on(
    asked: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*given: Any) -> quality.Point:
        os.kill(os.getpid(), signal.SIGINT)
        return evaluated(*given)

    evaluated = quality.evaluate_point
    monkeypatch.setattr(quality, "evaluate_point", stopping)
    assert main([*asked, "--arm", "ce"]) == 130
    assert "stopped after step 2 of 4; give the same command again to go on" in capsys.readouterr().err
    monkeypatch.setattr(quality, "evaluate_point", evaluated)
    assert main([*asked, "--arm", "ce"]) == 0
    assert capsys.readouterr().out.count("ce + mls") == 2


def test_quality_leaves_models_to_look_at(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--arm", "ce"]) == 0
    auroc = capsys.readouterr().out.splitlines()[-2].split()[-2]
    assert main(["evaluate", "out/ce-mls", "--data-root", "data"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (mls,) = (row for row in rows if row[:1] == ["mls"])
    assert mls[2] == auroc  # after the score's name and the accuracy
    assert Path("out/ce-mls/report.html").exists()
    Path("out/ce-mls/model.safetensors").unlink()
    assert main(["train", "--resume", "--out", "out/ce-mls", "--data-root", "data"]) == 0  # makes it again
    assert Path("out/ce-mls/model.safetensors").exists()


def test_only_the_bench_goes_on_with_an_arm(
    asked: list[str], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(quality, "evaluate_point", killed)
        with pytest.raises(RuntimeError, match="killed"):
            main([*asked, "--arm", "ce"])
    said = refused("train", "--resume", "--out", "out/ce-mls", "--data-root", "data")
    assert "made by 'gradmix bench quality'; run that again instead" in said
    assert main([*asked, "--arm", "ce"]) == 0


def test_quality_names_the_nearest_arm(asked: list[str], refused: Callable[..., str]) -> None:
    assert "cutmix" in refused(*asked, "--arm", "cutmx")
    assert not Path("out").exists()


def test_bench_knn_and_extract_print_rates(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--features", "300", "--classes", "5", "--dim", "8", "--queries", "4", "--rounds", "1"]
    assert main(["bench", "knn", *sizes, "--approximate"]) == 0
    out = capsys.readouterr().out
    assert "faiss flat" in out
    assert "% of the 3 nearest found" in out
    assert main(["bench", "extract", "--encoder", "resnet8_16", "--images", "20", "--rounds", "1"]) == 0
    assert "extract, cached" in capsys.readouterr().out
