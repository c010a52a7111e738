"""What lies in benchmarks/results can be taken over: ``gradmix reproduce --reuse benchmarks/results``."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.run import Runner

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results"
FOLDERS = sorted(path.parent for path in RECORDED.glob("*/trials"))


def runner_of(folder: Path, root: Path, **choices: object) -> Runner:
    name, _, preset = folder.name.rpartition("-")
    plan = make_plan(get_experiment(name), PRESETS[preset], **choices)  # type: ignore[arg-type]
    return Runner(plan, root)


def test_there_are_results() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_name_no_folder_of_the_machine(folder: Path) -> None:
    for file in (folder / "trials").iterdir():
        assert file.suffix == ".json"  # results, not weights
        text = file.read_text(encoding="utf-8")
        assert "/tmp" not in text
        assert "/home" not in text


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_one_is_found_under_its_key(folder: Path, tmp_path: Path) -> None:
    """A change that gives a recorded trial another key would train it again."""
    files = {file.stem for file in (folder / "trials").glob("*.json")}
    parts = [name.split(".") for name in files]
    asked = {"protocols": sorted({p[0] for p in parts}), "methods": sorted({p[1] for p in parts})}
    runner = runner_of(folder, tmp_path, **asked, trials=sorted({int(p[2]) for p in parts}))
    assert runner.take_over(RECORDED) == len(files)
