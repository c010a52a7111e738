"""The Semantic Shift Benchmark, OpenOOD's near and far sets, and macro-F1 on CIFAR10: their images."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradmix.cli.sources import load_training_data
from gradmix.data import (
    BENCHMARKS,
    KNOWN_SETS,
    PROTOCOLS,
    ImageFormat,
    UnknownSet,
    check_data,
    get_split,
    has_unknown_sets,
    load_unknown_sets,
    open_set_data,
    pool_groups,
    unknown_sets,
)
from gradmix.errors import UserError
from tests.data.fine_grained import make_aircraft, make_cars, make_cub
from tests.data.readers.test_lists import dtd

SMALL = ImageFormat(8, 3)
Save = Callable[..., None]
SSB = {
    "ssb-cub": (200, 100, 32, 34, 34),
    "ssb-cars": (196, 98, 76, 15, 7),
    "ssb-aircraft": (100, 50, 20, 17, 13),
}
MAKERS = {"ssb-cub": make_cub, "ssb-cars": make_cars, "ssb-aircraft": make_aircraft}


@pytest.mark.parametrize("name", SSB)
def test_ssb_divides_all_classes(name: str) -> None:
    benchmark, (total, known, *levels) = BENCHMARKS[name], SSB[name]
    assert len(benchmark.known) == known
    assert [unknown.name for unknown in benchmark.unknown] == ["easy", "medium", "hard"]
    assert [unknown.group for unknown in benchmark.unknown] == ["easy", "hard", "hard"]
    assert [len(unknown.classes or ()) for unknown in benchmark.unknown] == levels
    split = get_split(name, 0)
    assert sorted(split.known + split.unknown, key=int) == list(range(total))
    assert split.known_source == split.unknown_source
    assert benchmark.pooled


def test_ssb_pairs_of_cars_are_neighbors() -> None:
    """Medium and hard classes are variants of a known class, one number away, if classes count from 0.

    Official class 3 is an Acura TL and 4 an Acura TL Type-S: here 2 (known) and 3 (medium).
    """
    benchmark = BENCHMARKS["ssb-cars"]
    _, medium, hard = benchmark.unknown
    assert 2 in benchmark.known
    assert 3 in (medium.classes or ())
    for c in (*(medium.classes or ()), *(hard.classes or ())):
        assert {c - 1, c + 1} & set(benchmark.known)


@pytest.mark.parametrize("name", SSB)
def test_ssb_on_files_as_distributed(tmp_path: Path, name: str) -> None:
    split = get_split(name, 0)
    MAKERS[name](tmp_path / KNOWN_SETS[split.known_source].paths[0])
    data = open_set_data(split, data_root=tmp_path, size=8)
    # The color of an image tells its class.
    for part in (data.train, data.test_known):
        painted = part.images[:][:, 0, 4, 4].long()
        assert torch.equal(painted, torch.tensor(split.known)[part.labels])
    assert set(data.test_unknown.images[:][:, 0, 4, 4].tolist()) == set(split.unknown)
    assert data.test_unknown.labels.unique().tolist() == [-1]
    sets, missing = load_unknown_sets(name, tmp_path, SMALL)
    assert missing == ()
    assert sum(len(unknown.images) for unknown in sets) == len(data.test_unknown)
    for unknown, declared in zip(sets, BENCHMARKS[name].unknown, strict=True):
        assert set(unknown.images.images[:][:, 0, 4, 4].tolist()) == set(declared.classes or ())
        assert unknown.images.class_names == ()
    easy, hard = pool_groups(sets)
    assert (easy.name, hard.name) == ("easy", "hard")
    assert len(hard.images) == len(sets[1].images) + len(sets[2].images)


def test_pooled_images_of_one_map_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_MAP_ABOVE", "0")
    make_aircraft(tmp_path / "aircraft")
    sets, _ = load_unknown_sets("ssb-aircraft", tmp_path, SMALL)
    _, hard = pool_groups(sets)
    assert not isinstance(hard.images.images, torch.Tensor)
    assert len(hard.images.sources) == len(hard.images) == 30
    declared = {c for unknown in BENCHMARKS["ssb-aircraft"].unknown[1:] for c in unknown.classes or ()}
    assert set(hard.images.images[:][:, 0, 4, 4].tolist()) == declared


def save_npz(file: Path, train: int, test: int, side: int, value: int, n_classes: int = 10) -> None:
    """A data set of one gray, readable in the place of any other."""
    arrays = {}
    for split, n in (("train", train), ("test", test)):
        arrays[f"x_{split}"] = np.full((n, side, side, 3), value, np.uint8)
        arrays[f"y_{split}"] = np.arange(n) % n_classes
    np.savez(file, **arrays)


@pytest.fixture
def zoo(tmp_path: Path, save_image: Save, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with everything that openood-cifar10 needs, tiny; the arrays stand for packed formats."""
    root = tmp_path / "zoo"
    root.mkdir()
    for i, name in enumerate(("cifar10", "cifar100", "svhn", "mnist")):
        n_classes = 100 if name == "cifar100" else 10
        save_npz(root / f"{name}.npz", 2 * n_classes, n_classes, 8, 10 * i, n_classes)
        known = replace(KNOWN_SETS[name], paths=(f"{name}.npz",), class_names=None)
        monkeypatch.setitem(KNOWN_SETS, name, known)
    for name, known in KNOWN_SETS.items():
        monkeypatch.setitem(KNOWN_SETS, name, replace(known, hub_repo=None))  # nothing is downloaded
    for wnid in ("n01", "n02"):
        save_image(root / "tiny-imagenet-200" / "train" / wnid / "images" / f"{wnid}_0.JPEG", 64, 64)
        save_image(root / "tiny-imagenet-200" / "val" / "images" / f"val_{wnid}.JPEG", 64, 64)
    (root / "tiny-imagenet-200" / "wnids.txt").write_text("n01\nn02\n")
    rows = "".join(f"val_{wnid}.JPEG\t{wnid}\t0\t0\t9\t9\n" for wnid in ("n01", "n02"))
    (root / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(rows)
    dtd(root / "dtd", save_image)
    for i in range(5):
        save_image(root / "val_256" / f"Places365_val_{i + 1:08d}.jpg", 32, 32)
    return root


NEAR_FAR = [
    ("cifar100", "near", 100),
    ("tiny-imagenet", "near", 2),
    ("mnist", "far", 30),  # training and test images
    ("svhn", "far", 10),
    ("textures", "far", 9),  # all three splits
    ("places365", "far", 5),
]


def sizes(sets: tuple[UnknownSet, ...]) -> list[tuple[str, str, int]]:
    return [(unknown.name, unknown.group, len(unknown.images)) for unknown in sets]


def test_what_can_be_downloaded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_reach(*asked: object) -> None:
        raise UserError("the Hub is out of reach")

    monkeypatch.setattr(unknown_sets, "locate", out_of_reach)
    with pytest.raises(UserError, match=r"cifar100: looked for .*; gradmix data get cifar100 downloads it"):
        load_unknown_sets("openood-cifar10", tmp_path, SMALL)


def test_openood_near_and_far(zoo: Path) -> None:
    sets, missing = load_unknown_sets("openood-cifar10", zoo, SMALL)
    assert missing == ()
    assert sizes(sets) == NEAR_FAR
    for unknown in sets:
        assert unknown.images.images.shape[1:] == (3, 8, 8)
        assert unknown.images.labels.unique().tolist() == [-1]
    assert (sets[0].images.images[:] == 10).all()
    assert "7,793" in sets[1].note
    other, _ = load_unknown_sets("openood-cifar100", zoo, SMALL)
    assert sizes(other)[0] == ("cifar10", "near", 10)
    assert "6,526" in other[1].note


def test_what_is_missing_is_said_or_left_out(zoo: Path) -> None:
    (zoo / "svhn.npz").unlink()
    (zoo / "val_256").rename(zoo / "val")
    with pytest.raises(
        UserError, match=r"openood-cifar10 needs svhn, places365: not found \(svhn: .*with --skip-missing"
    ):
        load_unknown_sets("openood-cifar10", zoo, SMALL)
    sets, missing = load_unknown_sets("openood-cifar10", zoo, SMALL, skip_missing=True)
    assert [unknown.name for unknown in sets] == ["cifar100", "tiny-imagenet", "mnist", "textures"]
    assert [(unknown.name, unknown.group) for unknown in missing] == [("svhn", "far"), ("places365", "far")]
    assert str(zoo) in missing[0].reason


def test_nothing_to_leave_out_of(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_unknown_sets("cifar10-f1", tmp_path, SMALL, skip_missing=True)
    assert "cifar10-f1 needs imagenet-crop, imagenet-resize, lsun-crop, lsun-resize" in str(caught.value)
    assert "--skip-missing" not in str(caught.value)


def test_damage_is_not_taken_for_absence(zoo: Path) -> None:
    (zoo / "dtd" / "images" / "banded" / "banded_0001.jpg").write_bytes(b"")
    for skip_missing in (True, False):
        with pytest.raises(UserError, match=r"banded_0001.jpg is empty"):
            load_unknown_sets("openood-cifar10", zoo, SMALL, skip_missing)
    sets, _ = load_unknown_sets("openood-cifar10", zoo, SMALL, skip_bad=True)
    assert sizes(sets)[4] == ("textures", "far", 8)


def test_openoods_own_lists_come_first(zoo: Path, save_image: Save) -> None:
    for i in range(4):
        save_image(zoo / "images_classic" / "tin" / "val" / "images" / f"val_{i}.JPEG", 64, 64)
    lists = zoo / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    lines = [f"tin/val/images/val_{i}.JPEG -1" for i in (0, 3)]
    (lists / "test_tin.txt").write_text("\n".join(lines) + "\n")
    sets, _ = load_unknown_sets("openood-cifar10", zoo, SMALL)
    assert sizes(sets)[1] == ("tiny-imagenet", "near", 2)
    assert sets[1].images.sources == ("tin/val/images/val_0.JPEG", "tin/val/images/val_3.JPEG")
    assert sets[1].note == "OpenOOD's own list of images"
    assert sizes(sets)[:1] + sizes(sets)[2:] == NEAR_FAR[:1] + NEAR_FAR[2:]
    (lists / "test_tin.txt").write_text("../../secret.png -1\n")
    with pytest.raises(UserError, match="is not a path inside"):
        load_unknown_sets("openood-cifar10", zoo, SMALL)


def test_places365_in_class_folders(zoo: Path, save_image: Save) -> None:
    (zoo / "val_256").rename(zoo / "gone")
    for name in ("abbey", "zen_garden"):
        save_image(zoo / "places365_standard" / "train" / name / "00000001.jpg", 32, 32)
        save_image(zoo / "places365_standard" / "val" / name / "Places365_val_00000001.jpg", 32, 32)
    sets, _ = load_unknown_sets("openood-cifar10", zoo, SMALL)
    assert sets[5].images.sources == tuple(
        f"val/{name}/Places365_val_00000001.jpg" for name in ("abbey", "zen_garden")
    )


def test_a_split_of_whole_data_sets(zoo: Path) -> None:
    split = get_split("openood-cifar10", 0)
    assert (split.known, split.unknown) == (tuple(range(10)), ())
    data = open_set_data(split, data_root=zoo, size=8, channels=3)
    assert (len(data.train), len(data.test_known)) == (20, 10)
    assert len(data.test_unknown) == sum(n for _, _, n in NEAR_FAR)
    assert [(name, data.unknown_names.count(name)) for name in dict.fromkeys(data.unknown_names)] == [
        (name, n) for name, _, n in NEAR_FAR
    ]
    few = open_set_data(split, data_root=zoo, size=8, channels=3, limit_per_class=1)
    assert few.unknown_names == tuple(name for name, _, _ in NEAR_FAR)
    (zoo / "svhn.npz").unlink()
    with pytest.raises(UserError, match="needs svhn"):
        open_set_data(split, data_root=zoo, size=8, channels=3)
    less = open_set_data(split, data_root=zoo, size=8, channels=3, skip_missing=True)
    assert len(less.test_unknown) == len(data.test_unknown) - 10
    # Training needs none of them.
    alone = open_set_data(split, data_root=zoo, size=8, channels=3, only_known=True)
    assert (len(alone.train), len(alone.test_known), len(alone.test_unknown)) == (20, 10, 0)


def test_the_training_command_reads_the_known_set_alone(zoo: Path) -> None:
    for file in ("svhn.npz", "cifar100.npz"):
        (zoo / file).unlink()
    views = SimpleNamespace(image_size=8, channels=3)
    request = {"split": asdict(get_split("openood-cifar10", 0)), "skip_bad": False}
    recipe: Any = SimpleNamespace(views=views)
    assert len(load_training_data(request, str(zoo), recipe)) == 20


@pytest.mark.parametrize("spelling", ["distributed", "plain", "dashed"])
def test_macro_f1_sets_in_all_spellings(tmp_path: Path, save_image: Save, spelling: str) -> None:
    names = {
        "distributed": ("Imagenet/test", "Imagenet_resize", "LSUN/test", "LSUN_resize"),
        "plain": ("Imagenet_crop", "Imagenet_resize", "LSUN_crop", "LSUN_resize"),
        "dashed": ("imagenet-crop", "imagenet-resize", "lsun-crop", "lsun-resize"),
    }[spelling]
    for n, name in enumerate(names, 1):
        for i in range(n):
            save_image(tmp_path / name / f"{i}.png", 36, 36)
    sets, _ = load_unknown_sets("cifar10-f1", tmp_path, SMALL)
    assert [(unknown.name, len(unknown.images)) for unknown in sets] == [
        ("imagenet-crop", 1),
        ("imagenet-resize", 2),
        ("lsun-crop", 3),
        ("lsun-resize", 4),
    ]


def test_a_macro_f1_set_in_its_archive_and_checked(tmp_path: Path, save_image: Save) -> None:
    for i in range(3):
        save_image(tmp_path / "made" / "test" / f"{i}.png", 36, 36)
    with tarfile.open(tmp_path / "Imagenet.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "made", "Imagenet")
    sets, missing = load_unknown_sets("cifar10-f1", tmp_path, SMALL, skip_missing=True)
    assert ([unknown.name for unknown in sets], len(missing)) == (["imagenet-crop"], 3)
    assert len(sets[0].images) == 3
    report = check_data("imagenet-crop", data_root=tmp_path)
    assert (report.images, report.broken) == ({"all": 3}, False)


def test_imagenet_itself_is_not_taken_for_its_crops(tmp_path: Path, save_image: Save) -> None:
    for split in ("train", "val"):
        save_image(tmp_path / "Imagenet" / split / "n01440764" / "0.JPEG")
    with pytest.raises(UserError, match="needs imagenet-crop"):
        load_unknown_sets("cifar10-f1", tmp_path, SMALL)


def test_names_trials_and_families() -> None:
    assert [name for name in PROTOCOLS if has_unknown_sets(name)] == [
        *SSB,
        "openood-cifar10",
        "openood-cifar100",
        "cifar10-f1",
    ]
    with pytest.raises(UserError, match="did you mean 'openood-cifar10'"):
        get_split("openood-cifar", 0)
    with pytest.raises(UserError, match="did you mean 'ssb-aircraft'"):
        get_split("ssb-aircrafts", 0)
    with pytest.raises(UserError, match="no trial 1 of ssb-cub: it has one split"):
        get_split("ssb-cub", 1)
    with pytest.raises(
        UserError, match="ssb-cub has one split and no families: leave --family arpl_2020 out"
    ):
        get_split("ssb-cub", 0, "arpl_2020")
    with pytest.raises(UserError, match="no protocol with several unknown sets 'mnist'"):
        load_unknown_sets("mnist", None, SMALL)
    assert len({get_split(name, 0).hash for name in BENCHMARKS}) == len(BENCHMARKS)
