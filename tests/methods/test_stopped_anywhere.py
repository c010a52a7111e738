"""Methods stopped at every boundary of their stages, and a step beside it, end in the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.methods import METHODS
from gradmix.training import Recipe, session
from gradmix.training.stages import plan_stages
from tests.training.interrupted import train_whole_and_stopped
from tests.training.tiny import SMALL, tiny_images, tiny_recipe

STEPS = 6
FIELDS: dict[str, dict[str, object]] = {
    **SMALL,
    "proser": {"finetune_share": 0.5, "dummies": 2},
    "conosr": {"head_share": 0.5, "contrast_dim": 8},
}
# These are stopped and resumed in tests of their own (of gradmix: tests/training/test_resume.py).
ELSEWHERE = {
    *("gradmix", "moco", "arpl", "arpl-cs", "medaf", "c2ae", "grrosr", "osrci", "g-openmax", "g-openmax-gan"),
    *("locoop", "negprompt"),
}
# Every other method that trains something, also one that is registered later.
HERE = [name for name, kind in METHODS.items() if kind.needs_training and name not in ELSEWHERE]


def recipe_for(method: str, **fields: object) -> Recipe:
    return tiny_recipe(method=method, **FIELDS.get(method, {}), **fields)


def stops(method: str) -> list[int]:
    """Every stage's last step, the ones beside it, and the middle of the run."""
    recipe = recipe_for(method)
    planned = plan_stages(session.build_method(recipe, ("a", "b", "c")), recipe, STEPS)
    around = {stage.end + by for stage in planned[:-1] for by in (-1, 0, 1)}
    return sorted({STEPS // 2, *around} & set(range(1, STEPS)))


@pytest.mark.parametrize(("method", "stop"), [(method, stop) for method in HERE for stop in stops(method)])
def test_stopped_and_resumed_equals_undisturbed(
    method: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_whole_and_stopped(tiny_images(8), recipe_for(method, log_every=1), stop, tmp_path, monkeypatch)
