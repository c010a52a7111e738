from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradmix.data import KNOWN_SETS, ImageSet, cache_root, data_root, list_class_names, load_images
from gradmix.data.catalogue import known_set
from gradmix.data.loading.load import _in_class_order
from gradmix.errors import UserError


def test_roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADMIX_DATA", "/somewhere")
    assert data_root("/given") == Path("/given")
    assert data_root(None) == Path("/somewhere")
    monkeypatch.delenv("GRADMIX_DATA")
    monkeypatch.delenv("GRADMIX_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root(None) == cache_root() == tmp_path / ".cache" / "gradmix"
    assert data_root("~/data") == tmp_path / "data"


def test_names_in_any_spelling() -> None:
    for spelling, name in [("MNIST", "mnist"), ("CIFAR-10", "cifar10"), ("tiny_imagenet", "tiny-imagenet")]:
        known = known_set(spelling)
        assert known is not None
        assert known.name == name
    assert known_set("photos") is None


def test_what_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder or data set 'cifr10'; did you mean 'cifar10'"):
        load_images("cifr10")
    with pytest.raises(UserError, match=r"no such file or folder: .*photos"):
        load_images(tmp_path / "photos")


def test_a_name_is_the_data_set_and_a_path_the_folder(
    photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    photos.rename(tmp_path / "mnist")
    monkeypatch.chdir(tmp_path)
    assert load_images("./mnist").class_names == ("cat", "dog")
    assert load_images(Path("mnist")).class_names == ("cat", "dog")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="no mnist data"):
        load_images("mnist", data_root=tmp_path / "elsewhere")


def test_without_the_extra_it_says_what_where_and_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError) as caught:
        load_images("cifar100", data_root=tmp_path)
    text = str(caught.value)
    for part in (
        str(tmp_path),
        "cifar-100-python",
        "--data-root",
        "GRADMIX_DATA",
        "gradmix[hub]",
        "uoft-cs/cifar100",
    ):
        assert part in text
    assert "\n" not in text
    with pytest.raises(UserError, match="no mini-imagenet data"):
        load_images("mini-imagenet", data_root=tmp_path)


def hub_that(download: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = ModuleType("huggingface_hub")
    hub.snapshot_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_missing_data_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SimpleNamespace] = []

    def download(repo: str, *, repo_type: str, allow_patterns: list[str], local_dir: Path) -> None:
        asked.append(SimpleNamespace(repo=repo, kind=repo_type, files=allow_patterns))
        folder = Path(local_dir) / "cropped_digits"
        folder.mkdir(parents=True)
        import pyarrow as pa
        import pyarrow.parquet as pq
        from PIL import Image

        Image.new("RGB", (32, 32), (1, 2, 3)).save(tmp_path / "x.png")
        rows = {"image": [{"bytes": (tmp_path / "x.png").read_bytes()}], "label": [7]}
        pq.write_table(pa.table(rows), folder / "train-00000-of-00001.parquet")

    hub_that(download, monkeypatch)
    root = tmp_path / "root"
    for _ in range(2):
        assert load_images("svhn", data_root=root).labels.tolist() == [7]
    assert asked == [
        SimpleNamespace(repo="ufldl-stanford/svhn", kind="dataset", files=["cropped_digits/*.parquet"])
    ]
    assert {path.name for path in root.iterdir()} == {"svhn", ".svhn.lock"}


def test_a_failed_download_leaves_nothing_that_looks_like_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object, local_dir: Path, **__: object) -> None:
        Path(local_dir).mkdir(parents=True)
        (Path(local_dir) / "train.parquet").write_bytes(b"half")
        raise ConnectionError("offline\nsecond line")

    hub_that(download, monkeypatch)
    with pytest.raises(UserError, match=r"could not be downloaded from the Hub \(offline\); put it there"):
        load_images("mnist", data_root=tmp_path)
    assert not (tmp_path / "mnist").exists()


def test_copies_with_another_class_order_are_put_right() -> None:
    images = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    shuffled = ImageSet(images, torch.tensor([0, 1, -1]), ("n03", "n01"))
    right = _in_class_order(shuffled, ("n01", "n02", "n03"))
    assert right.labels.tolist() == [2, 0, -1]
    assert right.class_names == ("n01", "n02", "n03")
    assert _in_class_order(shuffled, ("one", "two", "three")) is shuffled


def test_the_catalogue_fits_the_splits() -> None:
    tiny = KNOWN_SETS["tiny-imagenet"].class_names
    assert tiny is not None
    assert len(tiny) == 200
    assert list(tiny) == sorted(tiny)
    assert len(KNOWN_SETS["cifar10"].class_names or ()) == 10


def test_named_sets_are_converted_too(tmp_path: Path, rng: np.random.Generator) -> None:
    np.savez(tmp_path / "a.npz", images=rng.integers(0, 256, (3, 10, 10), np.uint8), labels=[0, 1, 1])
    assert load_images(tmp_path / "a.npz", size=5, channels=3).images.shape == (3, 3, 5, 5)


def test_class_names_come_without_looking_at_the_images(photos: Path) -> None:
    (photos / "cat" / "0.png").write_bytes(b"not an image")
    assert list_class_names(photos) == ("cat", "dog")
    np.savez(photos / "set.npz", images=np.zeros((2, 8, 8), np.uint8), labels=["b", "a"])
    assert list_class_names(photos / "set.npz") == ("a", "b")
