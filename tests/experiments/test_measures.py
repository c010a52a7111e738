"""What is measured, on models and images whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image

from gradmix.data.corruptions import CORRUPTIONS
from gradmix.errors import UserError
from gradmix.experiments.declaration import Data
from gradmix.experiments.engine.trainings import Store, replace_detection
from gradmix.experiments.images import GeneratedImages, StoredImages, TrialData
from gradmix.experiments.measures import MEASURES, MeasureInput, corruption
from gradmix.experiments.measures.attention import _take_in_turn

from .conftest import smoke_runner


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


def inputs(root: Path, name: str, arm: str, bench: str = "cifar10", steps: int = 4) -> MeasureInput:
    """A model of the experiment's arm, trained for some steps on generated images."""
    runner = smoke_runner(
        name,
        root,
        protocols=[bench],
        methods=[arm],
        max_steps=None,
        overrides={"max_steps": steps, "epochs": 99},
    )
    [trial] = runner.plan.trials
    found = GeneratedImages().load_trial_data(trial.data, 0, 16, trial.recipe.views.channels)
    trained = Store(root).obtain(trial.training, trial.recipe, found.train)
    return MeasureInput(
        replace_detection(trained, trial.recipe),
        trial.recipe,
        found.train,
        found.test,
        found.unknown,
        found.unknown_names,
        GeneratedImages(),
        trial.data,
        0,
        runner.plan.experiment.out,
        probe="fast",
        corrupted_per_class=1,
    )


def test_open_set_scores_of_a_classifier_are_its_softmax(root: Path) -> None:
    one = inputs(root, "table2", "ce")
    found = MEASURES["open_set"].at_end(one).metrics
    assert found["auroc"] == found["auroc/msp"] == MEASURES["open_set"].at_snapshots(one)
    assert "known_accepted" not in found  # no threshold is set here
    assert found["auroc/knn"] == found["auroc/knn:shifted"]


def test_open_set_scores_of_others_are_k_nn(root: Path) -> None:
    one = inputs(root, "table2", "gradmix")
    found = MEASURES["open_set"].at_end(one).metrics
    assert found["auroc"] == found["auroc/knn"] == MEASURES["open_set"].at_snapshots(one)
    assert "auroc/msp" not in found


def test_known_images_against_themselves_are_a_coin_toss(root: Path) -> None:
    one = inputs(root, "table2", "gradmix")
    same = replace(one, unknown=one.test.only(range(len(one.test.class_names)), as_unknown=True))
    assert MEASURES["open_set"].at_end(same).metrics["auroc"] == pytest.approx(0.5)


@pytest.mark.slow
def test_training_helps(root: Path) -> None:
    """The patterns are simple: after a hundred steps their classes are known, and strangers are seen."""
    found = MEASURES["open_set"].at_end(inputs(root, "table2", "gradmix", steps=100)).metrics
    assert found["closed_set_accuracy"] > 0.9
    assert found["auroc"] > 0.8


class SpoilsNothing(GeneratedImages):
    """Its known test images are plain grey, so that all are one."""

    def load_trial_data(self, data: Data, trial: int, size: int | None, channels: int) -> TrialData:
        found = super().load_trial_data(data, trial, size, channels)
        grey = replace(found.test, images=torch.full_like(found.test.images[:], 128))
        return replace(found, test=grey)


def test_corruption_drops_are_means_of_75_sets(root: Path) -> None:
    found = MEASURES["corruption"].at_end(inputs(root, "table5", "gradmix")).metrics
    types = [found[f"type/{name}"] for name in CORRUPTIONS]
    severities = [found[f"severity/{s}"] for s in range(1, 6)]
    assert sum(types) / 15 == pytest.approx(sum(severities) / 5) == pytest.approx(found["severity/mean"])


def test_of_ten_equal_images_corruption_costs_nothing(root: Path) -> None:
    """All test images are one: its answer is right for one class in ten, whatever is done to it."""
    one = replace(inputs(root, "table5", "gradmix"), images=SpoilsNothing())
    found = MEASURES["corruption"].at_end(one).metrics
    assert found["clean"] == pytest.approx(0.1)
    for steady in ("brightness", "contrast", "defocus_blur", "pixelate", "jpeg_compression"):
        assert found[f"type/{steady}"] == pytest.approx(0.0)


def test_out_of_distribution_against_its_own_set_is_a_coin_toss(root: Path) -> None:
    one = replace(inputs(root, "table4", "gradmix"), out=("cifar10",))
    found = MEASURES["out_of_distribution"].at_end(one).metrics
    assert found["cifar10/auroc"] == pytest.approx(0.5)
    assert found["cifar10/auin"] == pytest.approx(0.5, abs=0.1)
    assert {"tnr", "auroc", "dtacc", "auin", "auout", "detection_accuracy"} == {
        name.split("/")[1] for name in found if "/" in name
    }


def test_the_activated_area_falls_with_the_threshold(root: Path) -> None:
    found = MEASURES["area"].at_end(inputs(root, "fig-area", "gradmix"))
    for kind in ("known", "unknown"):
        thresholds, shares = found.series[kind]
        assert (thresholds[0], thresholds[-1]) == pytest.approx((1e-5, 1e-3))
        assert all(a >= b for a, b in pairwise(shares))
        assert found.metrics[kind] == pytest.approx(shares[len(shares) // 2], abs=0.05)
        far, wide = found.series[f"{kind}/wide"]
        assert (far[0], far[-1]) == pytest.approx((1e-6, 1.0))
        assert wide[20] == pytest.approx(found.metrics[kind], abs=0.05)  # 1e-4 again
        assert 0 < found.metrics[f"{kind}/relative"] < 1


def test_the_area_of_another_method_is_refused(root: Path) -> None:
    with pytest.raises(UserError, match="S_M is compared between arms of the method gradmix, and ce"):
        MEASURES["area"].at_end(inputs(root, "table2", "ce"))


def test_maps_show_the_same_images_in_every_arm(root: Path) -> None:
    found = [
        MEASURES["maps"].at_end(inputs(root, "fig-maps", arm, "tinyimagenet")) for arm in ("none", "gradmix")
    ]
    for kind in ("known", "unknown"):
        images = [one.pictures[f"{kind}/image"] for one in found]
        assert torch.equal(*images)
        heat = found[0].pictures[f"{kind}/heat"]
        assert heat.shape == (len(images[0]), 16, 16)
        assert float(heat.max()) == pytest.approx(1.0)
        assert len(images[0]) == 8


@pytest.mark.parametrize("bench", ["cifar10", "tinyimagenet"])
def test_maps_show_eight_of_each_kind_and_measure_more(root: Path, bench: str) -> None:
    """Also of six known and four unknown classes."""
    one = inputs(root, "fig-maps", "gradmix", bench)
    found = MEASURES["maps"].at_end(one)
    for kind in ("known", "unknown"):
        images = found.pictures[f"{kind}/image"]
        assert len(images) == 8
        assert len({bytes(image.flatten().tolist()) for image in images}) == 8
    assert one.unknown is not None
    many = (min(512, len(one.test)), min(512, len(one.unknown)))
    assert found.notes == (f"Coverage is the mean over {many[0]} known and {many[1]} unknown test images",)
    assert 0 < found.metrics["spread"] < 1


@pytest.mark.parametrize(
    ("classes", "chosen"),
    [
        ("aaabbbcc", [0, 1, 3, 4, 6]),  # two of the first two
        ("abcdefghij", [0, 2, 4, 7, 9]),  # more classes than images: spread evenly
        ("aaa", [0, 1, 2]),
        ("abab", [0, 2, 1, 3]),  # class by class
        ("", []),
    ],
)
def test_classes_take_turns(classes: str, chosen: list[int]) -> None:
    assert _take_in_turn(classes, 5) == chosen


def test_the_index_of_the_recipe_is_used(root: Path) -> None:
    [trial] = smoke_runner(
        "table2", root, protocols=["cifar10"], methods=["gradmix"], overrides={"knn_index": "ivf"}
    ).plan.trials
    plain = inputs(root, "table2", "gradmix").recognizer
    assert plain.index.index == "exact"
    assert replace_detection(plain, trial.recipe).index.index == "ivf"


def test_frost_lies_beside_the_data(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, colour in (("given", 200), ("usual", 100)):
        (tmp_path / name / "frost").mkdir(parents=True)
        Image.new("RGB", (64, 64), (colour, colour, colour)).save(tmp_path / name / "frost" / "1.png")
    monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "usual"))
    one = inputs(root, "table5", "gradmix")

    def origin(data_root: Path | None) -> str:
        return corruption._load_frost(replace(one, images=StoredImages(data_root))).origin

    assert origin(tmp_path / "given") == str(tmp_path / "given" / "frost")
    assert origin(None) == str(tmp_path / "usual" / "frost")
    assert origin(tmp_path) == "generated"  # not what lies elsewhere


def test_diversity_has_logit_scores_only_with_a_classifier(root: Path) -> None:
    with_logits = MEASURES["diversity"].at_end(inputs(root, "table1", "ce")).metrics
    without = MEASURES["diversity"].at_end(inputs(root, "table1", "supcon")).metrics
    assert {"id", "id/pooled", "nno", "entropy", "msp"} <= with_logits.keys()
    assert {"entropy", "msp"}.isdisjoint(without)


def test_a_probe_of_simple_patterns_succeeds(root: Path) -> None:
    found = MEASURES["probe"].at_end(inputs(root, "fig-ssl", "simclr-gradmix", "resnet18")).metrics
    assert found["top1"] > 0.8
    assert found["top5"] >= found["top1"]
