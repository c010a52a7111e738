"""Images that a list names: DTD as distributed, and a .csv of paths and labels; MedMNIST's .npz."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradmix.data import list_class_names, list_data, list_splits, load_images
from gradmix.errors import UserError

Save = Callable[..., None]


def dtd(folder: Path, save_image: Save) -> None:
    """Three classes of three images: one for each split of each of two partitions."""
    for number in (1, 2):
        (folder / "labels").mkdir(parents=True, exist_ok=True)
        for i, split in enumerate(("train", "val", "test")):
            lines = [
                f"{name}/{name}_{(i + number) % 3:04d}.jpg" for name in ("banded", "dotted", "zigzagged")
            ]
            (folder / "labels" / f"{split}{number}.txt").write_text("\n".join(lines) + "\n")
    for name in ("banded", "dotted", "zigzagged"):
        for i in range(3):
            save_image(folder / "images" / name / f"{name}_{i:04d}.jpg", 40, 50)
    (folder / "imdb").mkdir()
    (folder / "imdb" / "imdb.mat").write_bytes(b"not read")


@pytest.mark.parametrize("place", ["dtd", "DTD", "dtd/dtd"])
def test_dtd(tmp_path: Path, save_image: Save, place: str) -> None:
    dtd(tmp_path / place, save_image)
    assert list_splits("dtd", data_root=tmp_path) == ("train", "val", "test")
    seen = []
    for split in ("train", "val", "test"):
        images = load_images("dtd", split=split, data_root=tmp_path, size=16)
        assert images.class_names == ("banded", "dotted", "zigzagged")
        assert images.labels.tolist() == [0, 1, 2]
        assert images.images.shape == (3, 3, 16, 16)
        seen += images.sources
    assert len(set(seen)) == 9  # the splits of the first partition have no image in common
    assert "images/banded/banded_0001.jpg" in seen
    assert {e.name: e.splits for e in list_data(tmp_path)}["dtd"] == (("train", 3), ("val", 3), ("test", 3))


def test_dtd_in_its_archive(tmp_path: Path, save_image: Save) -> None:
    dtd(tmp_path / "made", save_image)
    with tarfile.open(tmp_path / "dtd-r1.0.1.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "made", "dtd")
    assert load_images("dtd", split="test", data_root=tmp_path).labels.tolist() == [0, 1, 2]


def test_dtd_with_a_list_that_leaves_its_folder(tmp_path: Path, save_image: Save) -> None:
    dtd(tmp_path / "dtd", save_image)
    for line, complaint in [
        ("../../secret.jpg", "is not a path inside"),
        ("/etc/secret.jpg", "is not a path inside"),
        ("C:\\secret.jpg", "is not a path inside"),
        ("swirly/swirly_0001.jpg", "class 'swirly' is not among the 3 classes"),
        ("banded/banded_0009.jpg", "banded_0009.jpg cannot be opened"),
    ]:
        (tmp_path / "dtd" / "labels" / "train1.txt").write_text(line + "\n")
        with pytest.raises(UserError, match=complaint):
            load_images("dtd", data_root=tmp_path)


@pytest.fixture
def pictures(tmp_path: Path, save_image: Save) -> Path:
    for i in range(4):
        save_image(tmp_path / "pictures" / "raw" / f"{i}.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize(
    "text",
    [
        "raw/0.png,owl\nraw/1.png,newt\nraw/2.png,owl\n",
        "path,label\nraw/0.png,owl\nraw/1.png,newt\nraw/2.png,owl\n",
        "\ufeffid,Label,Image_Path\r\n7,owl,raw/0.png\r\n8,newt,raw/1.png\r\n\r\n9,owl,raw/2.png",
        "file;class\nraw\\0.png;owl\nraw\\1.png;newt\n./raw/2.png;owl\n",
        '"raw/0.png","owl"\n"raw/1.png","newt"\n"raw/2.png","owl"\n',
    ],
)
def test_csv(pictures: Path, text: str) -> None:
    file = pictures / "mine.csv"
    file.write_text(text, encoding="utf-8", newline="")
    images = load_images(file)
    assert images.class_names == list_class_names(file) == ("newt", "owl")
    assert images.labels.tolist() == [1, 0, 1]
    assert images.sources == ("raw/0.png", "raw/1.png", "raw/2.png")
    assert np.array_equal(images.images[1], load_images_of(pictures / "raw")[1])
    assert list_splits(file) == ("all",)


def load_images_of(folder: Path) -> np.ndarray:
    from gradmix.data import load_image_files

    return load_image_files([folder], size=8, channels=3)[0].images[:].numpy()


def test_csv_per_split(pictures: Path) -> None:
    (pictures / "train.csv").write_text("raw/0.png,owl\nraw/1.png,newt\n")
    assert list_splits(pictures / "train.csv") == ("all",)
    (pictures / "test.csv").write_text("path,label\nraw/2.png,owl\nraw/3.png,yak\n")
    assert list_splits(pictures / "train.csv") == ("train", "test")
    test = load_images(pictures / "train.csv", split="test")
    assert test.class_names == ("newt", "owl")
    assert test.labels.tolist() == [1, -1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lists no images"),
        ("path,label\n", "lists no images"),
        ("raw/0.png\n", "line 1: not a path and a label"),
        ("raw/0.png,owl\nraw/1.png,\n", "line 2: the label is empty"),
        ("raw/0.png,owl\n,newt\n", "line 2: the path is empty"),
        ("raw/0.png,owl\n../x.png,newt\n", "line 2: '../x.png' is not a path inside"),
        ("raw/0.png,owl\n/etc/x.png,newt\n", "line 2: '/etc/x.png' is not a path inside"),
        ("raw/0.png,owl\nraw/9.png,newt\n", "9.png cannot be opened.*--skip-bad"),
        ('raw/0.png,"owl\n', "cannot be read as a .csv"),
    ],
)
def test_wrong_csv(pictures: Path, text: str, complaint: str) -> None:
    (pictures / "mine.csv").write_text(text)
    with pytest.raises(UserError, match=complaint):
        load_images(pictures / "mine.csv")


def test_csv_that_is_not_text(pictures: Path) -> None:
    (pictures / "mine.csv").write_bytes(b"\xff\xfe\x00raw")
    with pytest.raises(UserError, match=r"cannot be read as a .csv"):
        load_images(pictures / "mine.csv")


def medmnist(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """As MedMNIST saves them: six arrays, labels in a column of bytes."""
    arrays = {}
    for split, labels in (("train", [0, 8, 3, 1]), ("val", [2, 0]), ("test", [1, 3, 0])):
        arrays[f"{split}_images"] = rng.integers(0, 256, (len(labels), *shape), np.uint8)
        arrays[f"{split}_labels"] = np.array(labels, np.uint8)[:, None]
    return arrays


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 3)])
@pytest.mark.parametrize("place", ["pathmnist.npz", "medmnist/pathmnist.npz"])
def test_medmnist(tmp_path: Path, rng: np.random.Generator, shape: tuple[int, ...], place: str) -> None:
    arrays = medmnist(rng, shape)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    np.savez_compressed(tmp_path / place, **arrays)
    assert list_splits("PathMNIST", data_root=tmp_path) == ("train", "val", "test")
    train = load_images("pathmnist", data_root=tmp_path)
    assert train.labels.tolist() == [0, 8, 3, 1]
    test = load_images("pathmnist", split="test", data_root=tmp_path)
    assert test.class_names == train.class_names == tuple("012345678")  # also where a split lacks the last
    pixels = test.images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(pixels if len(shape) == 3 else pixels[..., 0], arrays["test_images"])


def test_medmnist_of_several_labels_per_image_or_of_volumes(tmp_path: Path) -> None:
    several = {"train_images": np.zeros((2, 28, 28), np.uint8), "train_labels": np.zeros((2, 14), np.uint8)}
    np.savez(tmp_path / "chestmnist.npz", **several)
    with pytest.raises(UserError, match=r"chestmnist.npz: 2 images but labels of shape \(2, 14\)"):
        load_images(tmp_path / "chestmnist.npz")
    volumes = {
        "train_images": np.zeros((2, 28, 28, 28), np.uint8),
        "train_labels": np.zeros((2, 1), np.uint8),
    }
    np.savez(tmp_path / "organmnist3d.npz", **volumes)
    with pytest.raises(UserError, match=r"organmnist3d.npz: images have shape"):
        load_images(tmp_path / "organmnist3d.npz")
