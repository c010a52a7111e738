"""MNIST, CIFAR, SVHN, TinyImageNet and .npz in the form in which they are distributed."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from gradmix.data import list_splits, load_images
from gradmix.errors import UserError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("where", ["", "raw", "MNIST/raw"])
def test_mnist(tmp_path: Path, rng: np.random.Generator, zipped: bool, where: str) -> None:
    pixels, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), np.array([3, 0, 9, 1, 3], np.uint8)
    folder = tmp_path / "mnist" / where
    folder.mkdir(parents=True)
    for name, array in (("t10k-images-idx3-ubyte", pixels), ("t10k-labels-idx1-ubyte", labels)):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    images = load_images("mnist", split="test", data_root=tmp_path)
    assert np.array_equal(images.images[:, 0].numpy(), pixels)
    assert images.labels.tolist() == labels.tolist()
    assert images.class_names == tuple("0123456789")
    assert list_splits("mnist", data_root=tmp_path) == ("test",)
    with pytest.raises(UserError, match=r"mnist has no 'train' split: .* has test"):
        load_images("mnist", data_root=tmp_path)


def test_damaged_mnist(tmp_path: Path, rng: np.random.Generator) -> None:
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte.gz"
    whole = idx(rng.integers(0, 256, (5, 4, 4), np.uint8))
    images.write_bytes(gzip.compress(whole))
    with pytest.raises(UserError, match="no labels beside it"):
        load_images(tmp_path)
    labels.write_bytes(gzip.compress(idx(np.zeros(4, np.uint8))))
    with pytest.raises(UserError, match=r"5 images, .* 4 labels"):
        load_images(tmp_path)
    for content, complaint in [
        (gzip.compress(whole)[:-20], "damaged"),
        (b"not gzip", "damaged"),
        (gzip.compress(whole[:-3]), "cut off or too long: its header says 5 x 4 x 4"),
        (gzip.compress(b"\0\0\x0d\3" + whole[4:]), "not an idx file"),
        (gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)), "cut off"),
    ]:
        images.write_bytes(content)
        with pytest.raises(UserError, match=complaint):
            load_images(tmp_path)


def cifar_batch(pixels: np.ndarray, labels: list[int], key: bytes) -> bytes:
    """As Python 2 wrote them: protocol 2, keys and text as bytes."""
    rows = pixels.reshape(len(pixels), -1)
    return pickle.dumps({b"data": rows, key: labels, b"filenames": [b"x.png"] * len(labels)}, protocol=2)


def cifar10_files(rng: np.random.Generator) -> tuple[dict[str, bytes], np.ndarray]:
    pixels = rng.integers(0, 256, (12, 3, 32, 32), np.uint8)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    files = {"batches.meta": pickle.dumps({b"label_names": [n.encode() for n in names]}, protocol=2)}
    for i in range(5):
        files[f"data_batch_{i + 1}"] = cifar_batch(pixels[2 * i : 2 * i + 2], [i, 9 - i], b"labels")
    files["test_batch"] = cifar_batch(pixels[10:], [4, 5], b"labels")
    return files, pixels


def put(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def put_archive(files: dict[str, bytes], archive: Path, inside: str) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    "place", ["cifar10", "cifar10/cifar-10-batches-py", "cifar-10-batches-py", "cifar-10-python.tar.gz"]
)
def test_cifar10(tmp_path: Path, rng: np.random.Generator, place: str) -> None:
    files, pixels = cifar10_files(rng)
    if place.endswith(".gz"):
        put_archive(files, tmp_path / place, "cifar-10-batches-py")
    else:
        put(files, tmp_path / place)
    before = sorted(tmp_path.rglob("*"))
    train = load_images("cifar10", data_root=tmp_path)
    assert np.array_equal(train.images.numpy(), pixels[:10])
    assert train.labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert train.sources[2] == "data_batch_2#0"
    assert train.class_names[9] == "truck"
    assert np.array_equal(
        load_images("cifar10", split="test", data_root=tmp_path).images.numpy(), pixels[10:]
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("archived", [True, False])
def test_cifar100(tmp_path: Path, rng: np.random.Generator, archived: bool) -> None:
    pixels = rng.integers(0, 256, (3, 3, 32, 32), np.uint8)
    files = {
        "meta": pickle.dumps(
            {b"fine_label_names": [b"apple", b"bee"], b"coarse_label_names": [b"x"]}, protocol=2
        ),
        "train": cifar_batch(pixels[:2], [1, 0], b"fine_labels"),
        "test": cifar_batch(pixels[2:], [1], b"fine_labels"),
    }
    if archived:
        put_archive(files, tmp_path / "cifar100" / "cifar-100-python.tar.gz", "cifar-100-python")
    else:
        put(files, tmp_path / "cifar-100-python")
    train = load_images("CIFAR-100", data_root=tmp_path)
    assert train.counts() == {"apple": 1, "bee": 1}
    assert np.array_equal(train.images.numpy(), pixels[:2])
    assert load_images("cifar100", split="test", data_root=tmp_path).labels.tolist() == [1]


def test_damaged_cifar(tmp_path: Path, rng: np.random.Generator) -> None:
    files, _ = cifar10_files(rng)
    folder = tmp_path / "cifar10"
    put(files, folder)
    (folder / "data_batch_3").unlink()
    with pytest.raises(UserError, match="has no data_batch_3"):
        load_images(folder)
    for content, complaint in [
        (files["data_batch_3"][:-500], "data_batch_3 is not a plain CIFAR batch"),
        (b"junk", "data_batch_3 is not a plain"),
        (pickle.dumps([1, 2], protocol=2), "holds a list"),
        (pickle.dumps({b"labels": [1]}, protocol=2), "data_batch_3 has no 'data'"),
        (cifar_batch(np.zeros((2, 5, 5), np.uint8), [0, 1], b"labels"), "not a CIFAR batch of 2 images"),
    ]:
        (folder / "data_batch_3").write_bytes(content)
        with pytest.raises(UserError, match=complaint):
            load_images(folder)
    archive = tmp_path / "cifar-10-python.tar.gz"
    put_archive(files, archive, "x")
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz is damaged"):
        load_images(archive)


def test_svhn(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (32, 32, 3, 4), np.uint8)
    (tmp_path / "svhn").mkdir()
    digits = np.array([[10], [1], [9], [10]], np.uint8)
    scipy.io.savemat(tmp_path / "svhn" / "train_32x32.mat", {"X": pixels, "y": digits})
    images = load_images("svhn", data_root=tmp_path)
    assert images.labels.tolist() == [0, 1, 9, 0]
    assert np.array_equal(images.images[2].permute(1, 2, 0).numpy(), pixels[..., 2])
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"MATLAB 5.0 not really")
    with pytest.raises(UserError, match=r"test_32x32.mat cannot be read"):
        load_images("svhn", split="test", data_root=tmp_path)
    scipy.io.savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": pixels[..., :2], "y": digits})
    with pytest.raises(UserError, match="not SVHN's cropped digits"):
        load_images("svhn", split="test", data_root=tmp_path)


def tiny_imagenet(folder: Path, save_image: Callable[..., None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wnids.txt").write_text("n03\nn01\nn02\n")  # as distributed: not sorted
    for wnid in ("n03", "n01", "n02"):
        for i in range(2):
            save_image(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 64, 64)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    for i in range(3):
        save_image(folder / "val" / "images" / f"val_{i}.JPEG", 64, 64, "L" if i == 1 else "RGB")
    rows = [f"val_{i}.JPEG\t{wnid}\t0\t0\t9\t9\n" for i, wnid in enumerate(["n02", "n01", "n03"])]
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))
    save_image(folder / "test" / "images" / "test_0.JPEG", 64, 64)


@pytest.mark.parametrize("place", ["tiny-imagenet-200", "tiny-imagenet"])
def test_tiny_imagenet(tmp_path: Path, save_image: Callable[..., None], place: str) -> None:
    tiny_imagenet(tmp_path / place, save_image)
    train = load_images(tmp_path / place)
    assert train.class_names == ("n01", "n02", "n03")
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.images.shape == (6, 3, 64, 64)
    for split in ("val", "valid"):
        val = load_images("tiny-imagenet", split=split, data_root=tmp_path)
        assert val.labels.tolist() == [1, 0, 2]
        assert val.sources[0] == "val/images/val_0.JPEG"
    # The official test images have no labels: the validation images are the test set.
    assert load_images("tiny-imagenet", split="test", data_root=tmp_path).sources == val.sources


def test_tiny_imagenet_with_its_val_sorted_into_folders(
    tmp_path: Path, save_image: Callable[..., None]
) -> None:
    tiny_imagenet(tmp_path, save_image)
    (tmp_path / "val" / "val_annotations.txt").unlink()
    with pytest.raises(UserError, match=r"val_annotations.txt is missing"):
        load_images(tmp_path, split="val")
    images = tmp_path / "val" / "images"
    for i, wnid in enumerate(["n02", "n01", "n03"]):
        (tmp_path / "val" / wnid).mkdir()
        (images / f"val_{i}.JPEG").rename(tmp_path / "val" / wnid / f"val_{i}.JPEG")
    images.rmdir()
    assert load_images(tmp_path, split="val").labels.tolist() == [0, 1, 2]


def test_damaged_tiny_imagenet(tmp_path: Path, save_image: Callable[..., None]) -> None:
    tiny_imagenet(tmp_path, save_image)
    annotations = tmp_path / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn99\n")
    with pytest.raises(UserError, match="class n99 of 'val'"):
        load_images(tmp_path, split="val")
    annotations.write_text("val_0.JPEG\tn01\nval_1.JPEG n01\n")
    with pytest.raises(UserError, match=r"val_annotations.txt, line 2"):
        load_images(tmp_path, split="val")
    for outside in ("../../secret.png", str(tmp_path / "secret.png"), ""):
        annotations.write_text(f"{outside}\tn01\n")
        with pytest.raises(UserError, match=r"is not the name of a file in"):
            load_images(tmp_path, split="val")
    annotations.write_text("val_7.JPEG\tn01\n")
    with pytest.raises(UserError, match=r"val_7.JPEG"):
        load_images(tmp_path, split="val")


def test_npz(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (4, 6, 5, 3), np.uint8)
    file = tmp_path / "data.npz"
    np.savez(file, images=pixels, labels=[1, 0, 1, 1], class_names=["left", "right"])
    images = load_images(file)
    assert images.counts() == {"left": 1, "right": 3}
    assert np.array_equal(images.images.permute(0, 2, 3, 1).numpy(), pixels)
    assert images.sources[3] == "data.npz#3"
    assert load_images(file, size=4, channels=1).images.shape == (4, 1, 4, 4)
    np.savez(file, x_train=pixels, y_train=[0, 1, 2, 3], x_test=pixels[:1], y_test=[2])
    assert list_splits(file) == ("train", "test")
    assert load_images(file, split="test").labels.tolist() == [2]


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"pictures": np.zeros(3)}, "no array called 'images' .it has: pictures"),
        ({"images": np.zeros((2, 4, 4, 3)), "labels": [0, 1]}, "data.npz: images are float64"),
        ({"images": np.array([{}, {}]), "labels": [0, 1]}, "cannot be read .*allow_pickle"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": [0]}, "data.npz: 2 images"),
    ],
)
def test_wrong_npz(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UserError, match=complaint):
        load_images(tmp_path / "data.npz")


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"no zip file")
    with pytest.raises(UserError, match=r"data.npz is not a readable .npz"):
        load_images(tmp_path / "data.npz")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UserError, match=r"notes.txt has no images"):
        load_images(tmp_path / "notes.txt")
