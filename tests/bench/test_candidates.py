"""The files of candidates say what `benchmarks/search_recipe.py` can train."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gradmix.bench.quality import Arm, arm_recipe
from gradmix.training import load_recipe

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks" / "candidates").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_candidate_is_a_recipe_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    base = load_recipe(told["recipe"])
    recipes = [arm_recipe(base, Arm(name, fields or {}, "")) for name, fields in told["candidates"].items()]
    assert len({str(recipe.flat()) for recipe in recipes}) == len(recipes) > 1
