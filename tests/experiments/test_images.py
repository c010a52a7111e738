"""Images of a trial: generated ones are the same every time, missing ones are told before any training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradmix.data import get_split
from gradmix.errors import UserError
from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.declaration import OpenSplit, WholeSet
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.run import Runner
from gradmix.experiments.images import (
    GeneratedImages,
    StoredImages,
    TrialData,
    describe_training_images,
    list_sources,
    take_per_class,
)

MADE = GeneratedImages()


def test_generated_images_follow_the_split() -> None:
    found = MADE.load_trial_data(OpenSplit("cifar+10"), 0, 16, 3)
    split = get_split("cifar+10", 0)
    assert len(found.train.class_names) == 4
    assert found.unknown is not None
    assert not found.unknown.class_names
    assert len(set(found.unknown_names)) == len(split.unknown) == 10
    assert len(found.unknown_names) == len(found.unknown)
    again = MADE.load_trial_data(OpenSplit("cifar+10"), 0, 16, 3)
    assert again.train.content_hash() == found.train.content_hash()
    assert torch.equal(again.test.images[:], found.test.images[:])


def test_no_image_is_in_two_parts() -> None:
    found = MADE.load_trial_data(WholeSet("cifar10"), 0, 16, 3)
    rows = {bytes(image.flatten().tolist()) for image in found.train.images[:]}
    assert not rows & {bytes(image.flatten().tolist()) for image in found.test.images[:]}


def test_fewer_test_images_keep_their_names() -> None:
    found = MADE.load_trial_data(OpenSplit("tinyimagenet"), 0, 16, 3)
    few = found.limit_tests(2)
    assert set(few.test.counts().values()) == {2}
    assert few.unknown is not None
    assert len(few.unknown) == len(few.unknown_names) == 20
    assert few.unknown_names[0] == found.unknown_names[0]
    assert found.limit_tests(None) is found
    assert take_per_class(found.test, None) is found.test


def test_cifar_plus_n_share_their_training_images() -> None:
    ten, fifty = (
        describe_training_images(OpenSplit(name), 3, "arpl_2020") for name in ("cifar+10", "cifar+50")
    )
    assert ten == fifty
    assert ten != describe_training_images(OpenSplit("cifar+10"), 2, "arpl_2020")
    assert list_sources(OpenSplit("cifar+10"), 0, "arpl_2020") == ["cifar10", "cifar100"]
    assert list_sources(WholeSet("svhn"), 0, "arpl_2020") == ["svhn"]


def save_folder(root: Path, name: str, classes: list[str], splits: tuple[str, ...]) -> None:
    from PIL import Image

    for split in splits:
        for i, kind in enumerate(classes):
            folder = root / name / split / kind
            folder.mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (8, 8), (20 * i, 50 * number, 0)).save(folder / f"{number}.png")


def test_stored_images_of_a_whole_set(tmp_path: Path) -> None:
    save_folder(tmp_path, "imagenet100", ["a", "b", "c"], ("train", "val"))
    stored = StoredImages(tmp_path)
    found = stored.load_trial_data(WholeSet("imagenet100", first=2), 0, 8, 3)
    assert found.train.class_names == found.test.class_names == ("a", "b")
    assert len(found.test) == 8
    foreign = stored.load_foreign("imagenet100", 8, 3)
    assert len(foreign) == 12
    assert set(foreign.labels.tolist()) == {-1}


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    save_folder(tmp_path, "cifar10", ["airplane", "automobile"], ("train", "test"))
    with pytest.raises(UserError, match="cifar10, train: there are no images of class 'bird'"):
        StoredImages(tmp_path).load_trial_data(WholeSet("cifar10", first=3), 0, 8, 3)


def runner(name: str, tmp_path: Path, **choices: object) -> Runner:
    plan = make_plan(get_experiment(name), PRESETS["cpu"], trials=[0], **choices)  # type: ignore[arg-type]
    return Runner(plan, tmp_path / "out", tmp_path / "data")


def test_missing_data_is_told_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(UserError) as told:
        runner("table6", tmp_path).run()
    message = str(told.value)
    assert "table6 needs data for mini-imagenet" in message
    assert "no mini-imagenet data in" in message  # where it looked
    assert str(tmp_path / "data") in message
    assert "--data-root or GRADMIX_DATA" in message  # what to do
    assert not (tmp_path / "out").exists()


def test_missing_data_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = GeneratedImages.load_trial_data

    def only_cifar10(self: StoredImages, data: WholeSet, *asked: object) -> TrialData:
        if data.source != "cifar10":
            raise UserError(f"no {data.source} data")
        return real(GeneratedImages(), data, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredImages, "load_trial_data", only_cifar10)
    table3 = runner("table3", tmp_path, max_steps=1)
    with pytest.raises(
        UserError, match=r"uoft-cs/cifar100 .* run the rest with --protocol cifar10,tinyimagenet"
    ):
        table3.run()
    found = table3.look(skip_missing=True)
    assert set(found.plan.left_out) == {"cifar100", "tinyimagenet"}
    assert {trial.bench.name for trial in found.plan.trials} == {"cifar10"}
    lonely = runner("table3", tmp_path, protocols=["cifar100"], max_steps=1)
    with pytest.raises(UserError, match="nothing is left of table3"):
        lonely.look(skip_missing=True)
