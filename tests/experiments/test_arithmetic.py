"""A budget of floating-point operations: counted as torch counts, and by hand; as many steps as it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from gradmix.bench.methods import StageStep
from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine.arithmetic import (
    Arithmetic,
    count_arithmetic,
    limit_by_arithmetic,
    share_sizes,
)
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.recipes import UNLIMITED_EPOCHS
from gradmix.methods import Stage
from gradmix.recipe import Recipe, make_recipe
from gradmix.training.stages import PlannedStage
from tests.training.tiny import tiny_images

SMALL = {"encoder": "resnet8_16", "stem": "half", "image_size": 16, "batch_size": 32}


def recipe_of(method: str, **fields: object) -> Recipe:
    return make_recipe({"method": method, **SMALL, **fields})


def test_a_step_of_cross_entropy_is_what_torch_counts() -> None:
    recipe = recipe_of("ce")
    images = tiny_images()
    step = StageStep(recipe, images)
    with FlopCounterMode(display=False) as counter:
        step()
    per_image = counter.get_total_flops() / len(images)
    # The head has as many outputs as there are classes, which differ: less than a thousandth of a step.
    assert count_arithmetic(recipe).step == pytest.approx(32 * per_image, rel=2e-3)
    assert count_arithmetic(recipe).once == 0


def test_a_head_by_hand() -> None:
    """A linear layer of d by K: 2·d·K operations per image forward, as many for each of its two gradients."""
    wide, narrow = (count_arithmetic(recipe_of("ce", feature_dim=d)) for d in (256, 128))
    inside = 64  # the encoder's outputs, which the projection takes
    added = 32 * 3 * 2 * 128 * (inside + 6)
    assert wide.step - narrow.step == pytest.approx(added)


def test_three_views_are_three_times_the_arithmetic_of_one() -> None:
    one, three = count_arithmetic(recipe_of("ce")), count_arithmetic(recipe_of("gradmix", mixer="cutmix"))
    assert three.step == pytest.approx(3 * one.step, rel=0.02)  # no head, but similarities
    maps = count_arithmetic(recipe_of("gradmix", layers="conv4_2"))
    assert maps.step == pytest.approx(three.step, rel=1e-4)


def test_small_views_count_for_their_share_of_the_steps() -> None:
    full = count_arithmetic(recipe_of("ce", image_size=32)).step
    small = count_arithmetic(recipe_of("ce", image_size=16)).step
    growing = count_arithmetic(recipe_of("ce", image_size=32, start_size=16, grow_after=0.25)).step
    assert growing == pytest.approx(0.25 * small + 0.75 * full)


@pytest.mark.parametrize(
    ("start", "end", "wanted"), [(0, 400, {16: 0.4}), (400, 1000, {16: 0.1, 32: 0.5}), (500, 1000, {32: 0.5})]
)
def test_a_stage_has_the_sizes_of_its_part_of_the_training(
    start: int, end: int, wanted: dict[int, float]
) -> None:
    recipe = recipe_of("ce", image_size=32, start_size=16)
    planned = PlannedStage(0, Stage(), start, end, recipe.training, recipe.views)
    assert share_sizes(planned, 1000) == pytest.approx(wanted)


def test_one_confusing_step_in_four_counts_a_quarter() -> None:
    players = {"gan_width": 32, "noise_dim": 8, "projection": "none"}
    plain = count_arithmetic(recipe_of("arpl", projection="none")).step
    every, one_in_four = (
        count_arithmetic(recipe_of("arpl-cs", **players, confuse_every=n)).step for n in (1, 4)
    )
    assert one_in_four == pytest.approx(0.25 * every + 0.75 * plain)


def test_what_is_prepared_between_stages_counts_by_the_image() -> None:
    players = {"player_width": 4, "latent_channels": 4, "player_depth": 1, "counterfactual_steps": 1}
    some, many = (count_arithmetic(recipe_of("osrci", **players, made_images=n)) for n in (128, 512))
    assert some.once > 0
    assert many.once == pytest.approx(4 * some.once)
    assert many.step == some.step


def test_the_steps_fill_the_budget_and_no_more() -> None:
    recipe = recipe_of("ce", epochs=UNLIMITED_EPOCHS)
    counted = count_arithmetic(recipe)
    limited = limit_by_arithmetic(recipe, 10.5 * counted.step)
    assert limited.training.max_steps == 10
    assert counted.total(10) <= 10.5 * counted.step < counted.total(11)
    assert Arithmetic(1.0, 100.0).count_steps(10.0) == 1


def test_who_says_how_long_to_train_is_heard() -> None:
    recipe = recipe_of("ce", epochs=3)
    assert limit_by_arithmetic(recipe, 1e9) is recipe
    recipe = recipe_of("ce", epochs=UNLIMITED_EPOCHS, max_steps=5)
    assert limit_by_arithmetic(recipe, 1e9) is recipe


def test_every_row_of_the_preset_has_the_same_arithmetic() -> None:
    cpu = PRESETS["cpu"]
    assert cpu.operations is not None
    rows = ["ce", "openmax", "arpl", "gradmix"]
    plan = make_plan(get_experiment("table2"), cpu, protocols=["mnist", "cifar10"], methods=rows, trials=[0])
    for trial in plan.trials:
        steps = trial.recipe.training.max_steps
        assert steps is not None
        counted = count_arithmetic(trial.recipe)
        assert cpu.operations - counted.step < counted.total(steps) <= cpu.operations


def test_rows_of_the_preset_have_one_network_and_their_own_settings() -> None:
    plan = make_plan(get_experiment("table2"), PRESETS["cpu"], protocols=["cifar10", "svhn"], trials=[0])
    of = {trial.name: trial.recipe for trial in plan.trials}
    assert {recipe.model.encoder for recipe in of.values()} == {"conv7_32"}
    assert {recipe.training.limit_per_class for recipe in of.values()} == {None}
    assert of["cifar10.arpl.0"].training.optimizer == "sgd"
    assert of["cifar10.gradmix.0"].training.optimizer == "adam"
    assert of["cifar10.ce-plus.0"].views.randaugment == (1, 6)
    assert of["svhn.ce-plus.0"].views.randaugment_operations == "digits"
    assert not any(recipe.views.flip for name, recipe in of.items() if name.startswith("svhn"))
    assert of["cifar10.osrci.0"].views.start_size is None
    assert of["cifar10.ce.0"].views.start_size == 16


def test_trials_come_one_after_the_other() -> None:
    plan = make_plan(get_experiment("table2"), PRESETS["smoke"], methods=["ce"], trials=[0, 1])
    assert [trial.number for trial in plan.trials] == [0] * 6 + [1] * 6


def test_counting_a_recipe_twice_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of("ce")
    first = count_arithmetic(recipe)
    monkeypatch.setattr(StageStep, "__call__", lambda self: pytest.fail("it is counted again"))
    assert count_arithmetic(replace(recipe, training=replace(recipe.training, seed=5, lr=0.5))) == first
