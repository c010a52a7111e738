"""Runs with MoCo: stopped and resumed, seeds, checkpoints that do not fit, the printed recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gradmix.errors import UserError
from gradmix.methods import METHODS, MoCo
from gradmix.training import Interrupted, Recipe, RunFolder, load_recipe, make_recipe, session, train
from tests.training.interrupted import assert_equal_bits, saved, stop_after
from tests.training.tiny import FIELDS, tiny_images


def moco_recipe(**fields: Any) -> Recipe:
    own = {"method": "moco", "stem": "half", "queue_size": 20, "key_momentum": 0.9, "log_every": 4}
    return make_recipe(FIELDS | own | fields)


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

    record.view_count, record.needs_training = 2, True  # type: ignore[attr-defined]
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
        state["method"] = {k: v for k, v in state["method"].items() if k.startswith("network.")}
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
    torch.save(as_version_0_1_saved(saved(run)), run.state_file)
    assert train(tiny_images(8), recipe, run).steps == 6


def as_version_0_1_saved(state: dict[str, Any]) -> dict[str, Any]:
    """Format 1: the network by itself, MoCo's key network as ``key.…``, no stages."""
    method = {name.replace("key_network.", "key."): value for name, value in state["method"].items()}
    network = {n.removeprefix("network."): method.pop(n) for n in list(method) if n.startswith("network.")}
    rest = {name: state[name] for name in ("step", "optimizer", "scaler", "pending", "pending_count")}
    return {**rest, "minutes": 0.0, "network": network, "format": 1} | ({"method": method} if method else {})


def test_a_moco_run_saved_by_an_earlier_version_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recipe = tiny_images(8), moco_recipe()
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    old = RunFolder.create(tmp_path / "old", recipe, {})
    stop_after(monkeypatch, 8)  # the whole run's six steps come first
    train(images, recipe, whole)
    with pytest.raises(Interrupted):
        train(images, recipe, old)
    torch.save(as_version_0_1_saved(saved(old)), old.state_file)
    train(images, recipe, old)
    assert_equal_bits(saved(whole), saved(old))


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
