"""Options and recipe fields from a file; the command line wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.training import RunFolder
from tests.training.tiny import FIELDS

Refused = Callable[..., str]


def write(**values: object) -> None:
    lines = {**FIELDS, "holdout": 0.25, "max_steps": 1, **values}
    Path("my.yaml").write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))


def test_everything_from_a_file(photos: Path) -> None:
    write(source=photos, out="run", known="[bar, disc]", **{"skip-bad": "true", "split_seed": "null"})
    (photos / "bar" / "00.png").write_text("no image")
    assert main(["train", "--config", "my.yaml"]) == 0
    run = RunFolder.open("run")
    assert list(run.facts()["data"]["counts"]) == ["bar", "disc"]
    assert run.recipe().training.max_steps == 1
    assert run.recipe().detection.holdout == 0.25


def test_the_command_line_wins(photos: Path) -> None:
    write(source="nowhere", out="other", trial=3, epochs=9)
    assert main(["train", str(photos), "--config", "my.yaml", "--out", "run", "--epochs", "7"]) == 2  # trial
    write(source="nowhere", out="other", epochs=9)
    assert main(["train", str(photos), "--config", "my.yaml", "--out", "run", "--epochs", "7"]) == 0
    assert RunFolder.open("run").recipe().training.epochs == 7
    assert not Path("other").exists()


def test_trial_zero_of_the_command_line_wins(photos: Path, refused: Refused) -> None:
    write(out="run", protocol="mnist", trial=99)
    assert "99" in refused("train", "--config", "my.yaml")
    line = refused("train", "--config", "my.yaml", "--trial", "0")
    assert "99" not in line
    assert "mnist" in line  # which is not there


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epoks: 3\n", "my.yaml: no option or recipe field 'epoks'; did you mean 'epochs'?"),
        ("sorce: photos\n", "my.yaml: no option or recipe field 'sorce'; did you mean 'source'?"),
        ("skip_bad: 3\n", "my.yaml: skip_bad must be true or false, not 3"),
        ("trial: two\n", "my.yaml: trial cannot be 'two'"),
        ("out: {a: b}\n", "my.yaml: out must be one value"),
        ("config: other.yaml\n", "no option or recipe field 'config'"),
        ("- a\n", "my.yaml must be a list of 'field: value' lines"),
        ("a: [\n", "my.yaml is not valid YAML"),
        ("epochs: many\n", "epochs must be a whole number, not 'many'"),
        ("source: photos\n", "where to put the run? give --out RUN"),
        ("log: [wandb, nothing]\nout: run\nsource: photos", "no place to log to 'nothing'"),
    ],
)
def test_mistakes_in_the_file(content: str, message: str, photos: Path, refused: Refused) -> None:
    Path("my.yaml").write_text(content)
    words = ["--out", "run"] if content.startswith(("epochs", "trial", "skip")) else []
    assert message in refused("train", "--config", "my.yaml", *words, *([photos] if words else []))
    assert not Path("run").exists()
    assert "no file nowhere.yaml (--config)" in refused("train", "--config", "nowhere.yaml")


def test_resuming_takes_nothing_else_from_a_file(photos: Path, refused: Refused) -> None:
    write(source=photos, out="run")
    assert main(["train", "--config", "my.yaml"]) == 0
    assert "give only its folder" in refused("train", "--config", "my.yaml", "--resume")
    Path("again.yaml").write_text("resume: run\n")
    Path("run/model.safetensors").unlink()
    assert main(["train", "--config", "again.yaml"]) == 0
