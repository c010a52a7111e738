"""The files of candidates say what `benchmarks/search_recipe.py` can train."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gradmix.bench.quality import Contestant, make_contestant_recipe
from gradmix.training import load_recipe

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks" / "candidates").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_candidate_is_a_recipe_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    base = load_recipe(content["recipe"])
    recipes = [
        make_contestant_recipe(base, Contestant(name, fields or {}))
        for name, fields in content["candidates"].items()
    ]
    assert len({str(recipe.flat()) for recipe in recipes}) == len(recipes) > 1
