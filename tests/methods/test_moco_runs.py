"""Runs with MoCo: stopped and resumed, seeds, checkpoints that do not fit, the printed recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.methods import METHODS, MoCo
from gradmix.training import Interrupted, Recipe, RunFolder, load_recipe, make_recipe, session, train
from tests.training.tiny import FIELDS, tiny_images


def moco_recipe(**fields: Any) -> Recipe:
    own = {"method": "moco", "stem": "half", "queue_size": 20, "key_momentum": 0.9, "log_every": 4}
    return make_recipe(FIELDS | own | fields)


def stop_after(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """Ask to stop after these steps, as a signal would."""
    counter = [0]
    take = session.set_learning_rate

    def counting(optimizer: torch.optim.Optimizer, lr: float) -> None:
        counter[0] += 1
        take(optimizer, lr)

    @contextmanager
    def requests() -> Iterator[Callable[[], bool]]:
        yield lambda: counter[0] in steps

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no TensorBoard: it takes seconds
    monkeypatch.setattr(session, "stop_requests", requests)
    monkeypatch.setattr(session, "set_learning_rate", counting)


def saved(run: RunFolder) -> dict[str, Any]:
    state = run.load_state()
    assert state is not None
    return {name: part for name, part in state.items() if "minutes" not in name}


def assert_equal_bits(one: Any, other: Any, where: str = "state") -> None:
    assert type(one) is type(other), where
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_equal_bits(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_bits(a, b, f"{where}.{i}")
    else:
        assert one == other, where


@pytest.mark.parametrize("mixer", ["gradmix", "none"])
def test_stopped_and_resumed_equals_undisturbed(
    mixer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recipe = tiny_images(8), moco_recipe(mixer=mixer)  # 24 images: 3 steps an epoch
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, 8, 11)  # the whole run's six steps come first
    train(images, recipe, whole)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train(images, recipe, stopped)
    train(images, recipe, stopped)
    one, other = saved(whole), saved(stopped)
    assert {"queue", "pointer"} < one["method"].keys()
    assert int(one["method"]["pointer"]) == 6 * 8 % 20
    assert_equal_bits(one, other)


def test_another_seed_starts_with_another_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MoCo] = []

    def record(*arguments: Any, **options: Any) -> MoCo:
        made.append(MoCo(*arguments, **options))
        return made[-1]

    record.view_count = 2  # type: ignore[attr-defined]
    recipes = [moco_recipe(max_steps=1, queue_size=9, seed=seed) for seed in (0, 0, 1)]
    networks = [session.build_network(recipe, 3) for recipe in recipes]
    monkeypatch.setitem(METHODS, "moco", record)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "build_network", lambda recipe, classes: networks.pop(0))
    for recipe in recipes:
        torch.manual_seed(len(made))
        train(tiny_images(8), recipe)
    # One step of eight keys leaves the ninth direction of the start.
    kept = [method.queue[8] for method in made]
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2])


@pytest.mark.parametrize("damage", ["no state of the method", "another queue"])
def test_a_checkpoint_that_does_not_fit_is_refused(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = moco_recipe()
    run = RunFolder.create(tmp_path / "run", recipe, {})
    stop_after(monkeypatch, 2)
    with pytest.raises(Interrupted):
        train(tiny_images(8), recipe, run)
    state = saved(run) | {"minutes": 0.0}
    if damage == "another queue":
        state["method"]["queue"] = torch.zeros(7, 16)
    else:
        del state["method"]
    run.save_state(state)
    with pytest.raises(UserError, match=r"last\.pt does not belong to this run's recipe") as refusal:
        train(tiny_images(8), recipe, run)
    assert "\n" not in str(refusal.value)


def test_a_stateless_run_saved_by_an_earlier_version_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(FIELDS | {"stem": "half"})
    run = RunFolder.create(tmp_path / "run", recipe, {})
    stop_after(monkeypatch, 2)
    with pytest.raises(Interrupted):
        train(tiny_images(8), recipe, run)
    state = saved(run) | {"minutes": 0.0}
    assert state.pop("method") == {}
    run.save_state(state)
    assert train(tiny_images(8), recipe, run).steps == 6


@pytest.mark.parametrize("name", ["paper/moco-tinyimagenet", "paper/simclr-tinyimagenet"])
def test_the_papers_recipes_have_the_printed_values(name: str) -> None:
    flat = load_recipe(name).flat()
    printed = {"epochs": 200, "batch_size": 256, "feature_dim": 128, "encoder": "resnet18", "image_size": 64}
    printed |= {"mixer": "gradmix", "mix_weight": "area", "gamma_min": 0.1, "gamma_max": 0.5}
    if "moco" in name:
        printed |= {"method": "moco", "queue_size": 4096, "key_momentum": 0.999}
    else:
        printed |= {"method": "gradmix", "theta": 0.0, "lam": 1.0}
    assert {field: flat[field] for field in printed} == printed
