"""Fashion-MNIST, KMNIST, EMNIST and notMNIST, in the files in which they are distributed."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradmix.data import KNOWN_SETS, ImageSet, list_data, list_splits, load_images
from gradmix.data.loading.load import _with_names
from gradmix.errors import UserError
from tests.data.readers.test_raw_formats import idx


def put_idx(folder: Path, files: dict[str, np.ndarray], zipped: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        content = idx(array.astype(np.uint8))
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(
            gzip.compress(content) if zipped else content
        )


@pytest.mark.parametrize(
    ("name", "place", "first", "last"),
    [
        ("fashion-mnist", "fashion-mnist", "T-shirt/top", "Ankle boot"),
        ("FashionMNIST", "FashionMNIST/raw", "T-shirt/top", "Ankle boot"),
        ("fashion_mnist", "fashion-mnist/FashionMNIST/raw", "T-shirt/top", "Ankle boot"),
        ("kmnist", "kmnist", "o", "wo"),
        ("KMNIST", "KMNIST/raw", "o", "wo"),
    ],
)
def test_kin_of_mnist_have_names(
    tmp_path: Path, rng: np.random.Generator, name: str, place: str, first: str, last: str
) -> None:
    pixels = rng.integers(0, 256, (3, 28, 28), np.uint8)
    files = {"train-images-idx3-ubyte": pixels, "train-labels-idx1-ubyte": np.array([9, 0, 9])}
    put_idx(tmp_path / place, files)
    images = load_images(name, data_root=tmp_path)
    assert np.array_equal(images.images[:, 0].numpy(), pixels)
    assert images.labels.tolist() == [9, 0, 9]
    assert (images.class_names[0], images.class_names[9], len(images.class_names)) == (first, last, 10)


def test_a_copy_that_spaces_the_names_otherwise(tmp_path: Path) -> None:
    names = [
        name.replace("-", " - ").replace("/", " / ") for name in KNOWN_SETS["fashion-mnist"].class_names or ()
    ]
    images = ImageSet.from_arrays(np.zeros((2, 28, 28), np.uint8), [0, 9], names)
    assert images.class_names[0] == "T - shirt / top"  # as on the Hub
    assert _with_names(images, KNOWN_SETS["fashion-mnist"].class_names or ()).class_names[0] == "T-shirt/top"
    other = ImageSet.from_arrays(np.zeros((1, 28, 28), np.uint8), [0], ["a", "b"])
    assert _with_names(other, ("c", "d")) is other


def emnist(which: str, pixels: np.ndarray, labels: list[int]) -> dict[str, np.ndarray]:
    """The four files of one of EMNIST's sets: columns before rows."""
    stored = pixels.transpose(0, 2, 1)
    return {
        f"emnist-{which}-{split}-{kind}-ubyte": array
        for split in ("train", "test")
        for kind, array in (("images-idx3", stored), ("labels-idx1", np.array(labels)))
    }


@pytest.mark.parametrize("place", ["emnist", "emnist/gzip", "EMNIST/raw"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("which", "stored", "labels", "names"),
    [
        ("letters", [1, 26], [0, 25], "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("balanced", [0, 46], [0, 46], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"),
        ("digits", [0, 9], [0, 9], "0123456789"),
    ],
)
def test_emnist_is_turned_upright(
    tmp_path: Path,
    rng: np.random.Generator,
    place: str,
    zipped: bool,
    which: str,
    stored: list[int],
    labels: list[int],
    names: str,
) -> None:
    pixels = rng.integers(0, 256, (2, 28, 28), np.uint8)
    put_idx(tmp_path / place, emnist(which, pixels, stored), zipped)
    put_idx(tmp_path / place, emnist("mnist", pixels, [0, 1]), zipped)  # another set in the same folder
    images = load_images(f"emnist-{which}", split="test", data_root=tmp_path)
    assert np.array_equal(images.images[:, 0].numpy(), pixels)
    assert images.labels.tolist() == labels
    assert images.class_names == tuple(names)
    assert list_splits(f"emnist-{which}", data_root=tmp_path) == ("train", "test")
    listed = {entry.name: entry for entry in list_data(tmp_path)}
    assert listed[f"emnist-{which}"].splits == (("train", 2), ("test", 2))
    assert listed["emnist-byclass"].path is None


def test_emnist_in_its_archive_and_as_a_folder(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (2, 28, 28), np.uint8)
    put_idx(tmp_path / "gzip", emnist("letters", pixels, [1, 2]))
    alone = load_images(tmp_path / "gzip")
    assert alone.labels.tolist() == [0, 1]
    put_idx(tmp_path / "gzip", emnist("byclass", pixels, [10, 61]))
    with pytest.raises(UserError, match=r"several data sets .emnist-byclass, emnist-letters."):
        load_images(tmp_path / "gzip")
    (tmp_path / "root" / "emnist").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "root" / "emnist" / "gzip.zip", "w") as archive:
        for file in (tmp_path / "gzip").iterdir():
            archive.write(file, f"gzip/{file.name}")
    images = load_images("emnist-byclass", data_root=tmp_path / "root")
    assert [images.class_names[label] for label in images.labels.tolist()] == ["A", "z"]


def test_damaged_emnist(tmp_path: Path) -> None:
    files = emnist("letters", np.zeros((2, 28, 28), np.uint8), [0, 26])
    put_idx(tmp_path / "emnist", files)
    with pytest.raises(UserError, match=r"has label 0: letters has 1 to 26"):
        load_images("emnist-letters", data_root=tmp_path)
    put_idx(tmp_path / "emnist", {"emnist-letters-train-labels-idx1-ubyte": np.array([1])})
    with pytest.raises(UserError, match=r"2 images, .* has 1 labels"):
        load_images("emnist-letters", data_root=tmp_path)
    (tmp_path / "emnist" / "emnist-letters-train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="has no emnist-letters-train-labels-idx1-ubyte"):
        load_images("emnist-letters", data_root=tmp_path)


@pytest.mark.parametrize("place", ["notMNIST_small", "notmnist", "notMNIST/notMNIST_small"])
def test_notmnist_with_its_empty_files(tmp_path: Path, save_image: Callable[..., None], place: str) -> None:
    for name in "ABCDEFGHIJ":
        for font in ("QUdhcmFtb25k.png", "QmVyZw==.png"):
            save_image(tmp_path / place / name / font, 28, 28, "L")
    (tmp_path / place / "A" / "RGVtb2NyYXRpY2E=.png").write_bytes(b"")  # as in the original
    with pytest.raises(UserError, match=r"RGVtb2NyYXRpY2E=.png is empty .*--skip-bad"):
        load_images("notMNIST", data_root=tmp_path)
    with pytest.warns(UserWarning, match="left out 1 unreadable"):
        images = load_images("notMNIST", data_root=tmp_path, skip_bad=True)
    assert images.images.shape == (20, 1, 28, 28)
    assert images.counts() == dict.fromkeys("ABCDEFGHIJ", 2)


def test_names_are_found_in_any_spelling() -> None:
    for name in ("fashion-mnist", "emnist-letters", "notmnist", "dtd", "pathmnist", "organsmnist"):
        assert name in KNOWN_SETS
    with pytest.raises(UserError, match="did you mean 'fashion-mnist'"):
        load_images("fashion-mnst")
