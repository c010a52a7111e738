"""Every contestant gets the same encoder and minutes, and a bench that was stopped goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.bench import quality
from gradmix.bench.quality import CONTESTANTS as BY_NAME
from gradmix.bench.quality import bench_quality, make_contestant_recipe
from gradmix.bench.rounds import Timing, take_turns
from gradmix.bench.step import StepSettings
from gradmix.data import ImageSet, OpenSetData, custom_split
from gradmix.errors import UserError
from gradmix.training import Recipe, RunFolder, make_recipe

ARMS = tuple(BY_NAME.values())


def small_recipe() -> Recipe:
    return make_recipe(
        {
            "method": "gradmix",
            "encoder": "resnet8_16",
            "stem": "half",
            "image_size": 16,
            "layers": ["conv4_2"],
            "lam": 0.3,
            "batch_size": 8,
        }
    )


def small_data() -> OpenSetData:
    generator = torch.Generator().manual_seed(0)

    def images(n: int, classes: int) -> ImageSet:
        pixels = torch.randint(0, 256, (n, 3, 16, 16), generator=generator).to(torch.uint8)
        labels = torch.arange(n) % classes if classes else torch.full((n,), -1)
        return ImageSet(pixels, labels, tuple("ab")[:classes])

    split = custom_split("toy", ["a", "b", "c"], ["a", "b"], None, 0)
    return OpenSetData(images(24, 2), images(12, 2), images(8, 0), split)


def test_arms_share_everything_but_the_objective() -> None:
    recipes = {contestant.name: make_contestant_recipe(small_recipe(), contestant) for contestant in ARMS}
    assert [r.method for r in recipes.values()] == ["ce", "gradmix", "gradmix", "gradmix"]
    assert len({(r.model, r.views, r.training) for r in recipes.values()}) == 1
    mixers = [recipes[name].objective.mixer for name in ("supcon + simclr", "+ CutMix", "+ GradMix")]
    assert mixers == ["none", "cutmix", "gradmix"]
    assert recipes["+ CutMix"].objective.lam == 0.3


def test_curves_have_their_points_and_a_second_call_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "measure_step_seconds", lambda recipes, data: dict.fromkeys(recipes, 0.01))
    data = small_data()
    curves = bench_quality(data, small_recipe(), 6 * 0.01 / 60, tmp_path, points=3)
    assert [curve.contestant for curve in curves] == [contestant.name for contestant in ARMS]
    for curve in curves:
        assert [point.steps for point in curve.points] == [2, 4, 6]
        assert all(0 <= p.auroc <= 1 and 0 <= p.accuracy <= 1 for p in curve.points)
        assert list(curve.points) == sorted(curve.points, key=lambda p: p.minutes)

    monkeypatch.setattr(quality, "train", None)
    assert bench_quality(data, small_recipe(), 6 * 0.01 / 60, tmp_path, points=3) == curves


def test_a_stopped_arm_goes_on_with_the_steps_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, contestants = small_data(), ARMS[1:2]
    monkeypatch.setattr(quality, "measure_step_seconds", lambda recipes, data: dict.fromkeys(recipes, 0.01))
    whole = bench_quality(data, small_recipe(), 6 * 0.01 / 60, tmp_path / "whole", 3, contestants)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(quality, "evaluate_point", killed)
        with pytest.raises(KeyboardInterrupt):
            bench_quality(data, small_recipe(), 6 * 0.01 / 60, tmp_path / "stopped", 3, contestants)
    # Settled once: a slower machine changes nothing.
    monkeypatch.setattr(quality, "measure_step_seconds", None)
    again = bench_quality(data, small_recipe(), 6 * 0.01 / 60, tmp_path / "stopped", 3, contestants)
    values = [[(p.steps, p.auroc, p.accuracy) for p in c[0].points] for c in (whole, again)]
    assert values[0] == values[1]
    assert RunFolder.open(tmp_path / "stopped" / "supcon-simclr").recipe().training.max_steps == 6


def test_a_folder_answers_one_question_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "measure_step_seconds", lambda recipes, data: dict.fromkeys(recipes, 0.01))
    data, recipe, contestants = small_data(), small_recipe(), ARMS[:1]
    bench_quality(data, recipe, 2 * 0.01 / 60, tmp_path, 1, contestants)
    other = make_recipe(recipe.flat() | {"lr": 0.5})
    other_split = replace(data, split=replace(data.split, trial=1))
    for asked in ((data, recipe, 1.0), (data, other, 2 * 0.01 / 60), (other_split, recipe, 2 * 0.01 / 60)):
        with pytest.raises(UserError, match="other data, minutes or settings; choose another --out"):
            bench_quality(*asked, tmp_path, 1, contestants)


def test_rounds_there_must_be() -> None:
    with pytest.raises(UserError, match="--rounds must be at least 1, not 0"):
        take_turns({"a": lambda: None}, "a", 0)
    with pytest.raises(UserError, match="batch_size must be at least 1, not -5"):
        StepSettings(batch_size=-5)


def test_a_step_of_every_arm_is_timed() -> None:
    """Which is faster is for a benchmark to say, on a machine with nothing else to do."""
    data, recipe = small_data(), small_recipe()
    recipes = {contestant.name: make_contestant_recipe(recipe, contestant) for contestant in ARMS}
    seconds = quality.measure_step_seconds(recipes, data, rounds=3)
    assert list(seconds) == [contestant.name for contestant in ARMS]
    assert all(value > 0 for value in seconds.values())


def test_the_time_of_a_step_is_that_of_the_sizes_its_views_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(turns: dict[str, object], reference: str, rounds: int) -> list[Timing]:
        assert list(turns) == ["one, 8 px", "one, 16 px", "other, 16 px"]
        return [Timing(name, 2.0, ratio, 1, 1) for name, ratio in zip(turns, (1, 3, 4), strict=True)]

    monkeypatch.setattr(quality, "take_turns", timed)
    flat = small_recipe().flat()
    recipes = {
        "one": make_recipe(flat | {"start_size": 8, "grow_after": 0.25}),
        "other": make_recipe(flat | {"start_size": 16}),
    }
    assert quality.measure_step_seconds(recipes, small_data()) == {"one": 2 * (0.25 + 0.75 * 3), "other": 8}
