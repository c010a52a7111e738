"""Methods stopped at every boundary of their stages, and a step beside it, end in the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.training import session
from gradmix.training.stages import plan_stages
from tests.training.interrupted import train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe

STEPS = 6
FIELDS: dict[str, dict[str, object]] = {
    "openauc": {},
    "proser": {"finetune_share": 0.5, "dummies": 2},
    "conosr": {"head_share": 0.5, "contrast_dim": 8},
    "logitnorm": {},
    "rotpred": {},
}


def stops(method: str) -> list[int]:
    """Every stage's last step, the ones beside it, and the middle of the run."""
    recipe = tiny_recipe(method=method, **FIELDS[method])
    planned = plan_stages(session.build_method(recipe, ("a", "b", "c")), recipe, STEPS)
    around = {stage.end + by for stage in planned[:-1] for by in (-1, 0, 1)}
    return sorted({STEPS // 2, *around} & set(range(1, STEPS)))


@pytest.mark.parametrize(("method", "stop"), [(method, stop) for method in FIELDS for stop in stops(method)])
def test_stopped_and_resumed_equals_undisturbed(
    method: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recipe = tiny_images(8), tiny_recipe(method=method, log_every=1, **FIELDS[method])
    train_whole_and_stopped(images, recipe, stop, tmp_path, monkeypatch)
