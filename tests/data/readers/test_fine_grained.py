from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from gradmix.data import ImageSet, list_data, list_splits, load_images
from gradmix.errors import UserError
from tests.data.fine_grained import make_aircraft, make_cars, make_cub


def numbers(images: ImageSet) -> list[int]:
    """The number that is painted on each image, after its class was compared with its label."""
    assert torch.equal(images.images[:, 0, 4, 4].long(), images.labels)
    return sorted(set(images.images[:][:, 1, 4, 4].tolist()))


@pytest.mark.parametrize("place", ["CUB_200_2011", "cub", "cub-200-2011/CUB_200_2011"])
def test_cub(tmp_path: Path, place: str) -> None:
    make_cub(tmp_path / place, 12)
    assert list_splits("cub-200-2011", data_root=tmp_path) == ("train", "test")
    train = load_images("CUB-200-2011", data_root=tmp_path)
    test = load_images("CUB-200-2011", split="test", data_root=tmp_path)
    assert (numbers(train), numbers(test)) == ([0], [1, 2])
    assert train.counts() == dict.fromkeys(train.class_names, 1)
    assert test.counts() == dict.fromkeys(train.class_names, 2)
    assert train.class_names[9] == "010.Bird_2"
    assert {e.name: e.splits for e in list_data(tmp_path)}["cub-200-2011"] == (("train", 12), ("test", 24))


def test_cub_in_its_archive(tmp_path: Path) -> None:
    make_cub(tmp_path / "made", 3)
    (tmp_path / "attributes.txt").write_text("1 has_bill_shape\n")  # lies beside the folder there
    with tarfile.open(tmp_path / "CUB_200_2011.tgz", "w:gz") as archive:
        archive.add(tmp_path / "made", "CUB_200_2011")
        archive.add(tmp_path / "attributes.txt", "attributes.txt")
    assert numbers(load_images("cub-200-2011", split="test", data_root=tmp_path)) == [1, 2]


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("images.txt", "1 ../../secret.jpg", "is not a path inside"),
        ("images.txt", "1 001.Bird_0/none.jpg", "none.jpg cannot be opened"),
        ("images.txt", "one x.jpg", "line 1: not a number and a word"),
        ("train_test_split.txt", "99 1", "names image 99"),
        ("image_class_labels.txt", "1 44", "image 1 has class 44, which classes.txt lacks"),
    ],
)
def test_damaged_cub(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    make_cub(tmp_path, 3)
    lines = (tmp_path / file).read_text().splitlines()
    (tmp_path / file).write_text("\n".join([line, *lines[1:]]))
    with pytest.raises(UserError, match=complaint):
        load_images(tmp_path)


@pytest.mark.parametrize("labels_in_devkit", [True, False])
@pytest.mark.parametrize("place", ["stanford_cars", "cars"])
def test_cars(tmp_path: Path, place: str, labels_in_devkit: bool) -> None:
    make_cars(tmp_path / place, 11, labels_in_devkit)
    assert list_splits("stanford-cars", data_root=tmp_path) == ("train", "test")
    train = load_images("stanford-cars", data_root=tmp_path)
    test = load_images("stanford-cars", split="test", data_root=tmp_path)
    assert (numbers(train), numbers(test)) == ([0, 1], [100])
    assert train.class_names[10] == "Maker Model 10 Sedan 2012"
    assert {e.name: e.splits for e in list_data(tmp_path)}["stanford-cars"] == (("train", 22), ("test", 11))


def test_cars_packed_twice_and_without_test_labels(tmp_path: Path) -> None:
    make_cars(tmp_path, 3)
    (tmp_path / "cars_train").rename(tmp_path / "once")
    (tmp_path / "cars_train").mkdir()
    (tmp_path / "once").rename(tmp_path / "cars_train" / "cars_train")
    (tmp_path / "cars_test_annos_withlabels.mat").unlink()
    assert list_splits(tmp_path) == ("train",)
    assert numbers(load_images(tmp_path)) == [0, 1]


def test_damaged_cars(tmp_path: Path) -> None:
    make_cars(tmp_path, 3)
    annotations = tmp_path / "devkit" / "cars_train_annos.mat"
    whole = annotations.read_bytes()
    for content, complaint in [
        (b"not MATLAB", "cars_train_annos.mat cannot be read"),
        (whole[: len(whole) // 2], "cars_train_annos.mat cannot be read"),
    ]:
        annotations.write_bytes(content)
        with pytest.raises(UserError, match=complaint):
            load_images(tmp_path)
    table = np.empty((1, 2), [("fname", object), ("class", object)])
    table[0, 0], table[0, 1] = ("00001.jpg", 1), ("00002.jpg", 9)
    scipy.io.savemat(annotations, {"annotations": table})
    with pytest.raises(UserError, match=r"has class 9; cars_meta.mat names 1 to 3"):
        load_images(tmp_path)
    table[0, 1] = ("../../secret.jpg", 1)
    scipy.io.savemat(annotations, {"annotations": table})
    with pytest.raises(UserError, match="is not a path inside"):
        load_images(tmp_path)
    scipy.io.savemat(annotations, {"annotations": np.arange(3)})
    with pytest.raises(UserError, match="has no 'class' and 'fname' per image"):
        load_images(tmp_path)


@pytest.mark.parametrize("place", ["fgvc-aircraft-2013b", "fgvc-aircraft/fgvc-aircraft-2013b", "aircraft"])
def test_aircraft(tmp_path: Path, place: str) -> None:
    make_aircraft(tmp_path / place, 10)
    assert list_splits("fgvc-aircraft", data_root=tmp_path) == ("train", "test")
    train = load_images("fgvc-aircraft", data_root=tmp_path)
    test = load_images("fgvc-aircraft", split="test", data_root=tmp_path)
    assert (numbers(train), numbers(test)) == ([0, 1], [2])
    assert list(train.class_names) == sorted(train.class_names)
    assert "Cessna 02" in train.class_names
    assert "F/A-01" in train.class_names


def test_damaged_aircraft(tmp_path: Path) -> None:
    make_aircraft(tmp_path, 4)
    listed = tmp_path / "data" / "images_variant_trainval.txt"
    for line, complaint in [
        ("1000000", "line 1: not 'number variant'"),
        ("1000000 Concorde", "class 'Concorde' is not among the 4 classes"),
        ("../../secret A300", "is not a path inside"),
    ]:
        listed.write_text(line + "\n")
        with pytest.raises(UserError, match=complaint):
            load_images(tmp_path)
