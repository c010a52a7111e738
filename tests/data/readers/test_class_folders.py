from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.data import list_splits, load_image_files, load_images
from gradmix.errors import UserError


def test_labels_follow_the_sorted_folder_names(photos: Path) -> None:
    images = load_images(photos)
    assert images.class_names == ("cat", "dog")
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.sources == tuple(f"{name}/{i}.png" for name in ("cat", "dog") for i in range(3))
    assert images.images.shape == (6, 3, 8, 8)
    expected = np.asarray(Image.open(photos / "dog" / "1.png"))[:, 1:9]
    assert np.array_equal(images.images[4].permute(1, 2, 0).numpy(), expected)


def test_size_and_channels_can_be_asked_for(photos: Path) -> None:
    assert load_images(photos, size=12, channels=1).images.shape == (6, 1, 12, 12)
    for wrong in ({"size": 0}, {"channels": 4}):
        with pytest.raises(UserError, match="must be"):
            load_images(photos, **wrong)


def test_mixed_sizes_modes_and_what_lies_about(photos: Path, save_image: Callable[..., None]) -> None:
    save_image(photos / "cat" / "deep" / "er.JPG", 100, 50)
    save_image(photos / "dog" / "grey.png", 9, 9, "L")
    save_image(photos / "dog" / "palette.gif", 30, 9, "P")
    (photos / "cat" / "notes.txt").write_text("not an image")
    (photos / "cat" / ".hidden.png").write_text("not an image")
    (photos / ".git").mkdir()
    (photos / "__MACOSX" / "cat").mkdir(parents=True)
    images = load_images(photos)
    assert images.counts() == {"cat": 4, "dog": 5}
    assert images.images.shape[1:] == (3, 8, 8)
    assert "cat/deep/er.JPG" in images.sources


def test_all_grey_is_grey(tmp_path: Path, save_image: Callable[..., None]) -> None:
    for name in ("a/1.png", "b/1.png"):
        save_image(tmp_path / "grey" / name, mode="L")
    assert load_images(tmp_path / "grey").channels == 1


def test_split_folders_and_classes_that_only_the_test_has(
    tmp_path: Path, save_image: Callable[..., None]
) -> None:
    for name in ("train/cat/1.png", "train/emu/1.png", "test/emu/2.png", "test/yak/3.png", "valid/cat/4.png"):
        save_image(tmp_path / "zoo" / name)
    folder = tmp_path / "zoo"
    assert list_splits(folder) == ("train", "val", "test")
    assert load_images(folder).sources == ("train/cat/1.png", "train/emu/1.png")
    test = load_images(folder, split="test")
    assert test.class_names == ("cat", "emu")
    assert test.labels.tolist() == [1, -1]
    assert load_images(folder, split="validation").counts() == {"cat": 1, "emu": 0}
    with pytest.raises(UserError, match=r"no 'extra' split.*train, val, test"):
        load_images(folder, split="extra")


def test_a_class_may_be_called_train(tmp_path: Path, save_image: Callable[..., None]) -> None:
    for name in ("car/1.png", "train/1.png", "test/1.png"):
        save_image(tmp_path / "traffic" / name)
    assert list_splits(tmp_path / "traffic") == ("all",)
    assert load_images(tmp_path / "traffic").class_names == ("car", "test", "train")


def test_a_plain_folder_has_no_test_split(photos: Path) -> None:
    assert len(load_images(photos, split="all")) == 6
    with pytest.raises(UserError, match="no 'test' split"):
        load_images(photos, split="test")


def test_bad_images_are_named_or_skipped(photos: Path) -> None:
    (photos / "cat" / "1.png").write_bytes(b"")
    whole = (photos / "dog" / "2.png").read_bytes()
    (photos / "dog" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cat/1.png is empty \(0 bytes\) \(and 1 more\); --skip-bad"):
        load_images(photos)
    with pytest.warns(UserWarning, match="left out 2 unreadable"):
        images = load_images(photos, skip_bad=True)
    assert images.counts() == {"cat": 2, "dog": 2}
    assert "cat/1.png" not in images.sources


def test_folders_that_cannot_be_trained_on(
    tmp_path: Path, photos: Path, save_image: Callable[..., None]
) -> None:
    (photos / "eel").mkdir()
    with pytest.raises(UserError, match=r"class folder .*eel has no images"):
        load_images(photos)
    (photos / "eel" / "1.png").write_text("no image")
    with pytest.raises(UserError, match=r"eel has no readable image: .*1.png is not an image"):
        load_images(photos, skip_bad=True)
    save_image(tmp_path / "one" / "cat" / "1.png")
    assert load_images(tmp_path / "one").class_names == ("cat",)
    save_image(tmp_path / "one" / "cat" / "sub" / "1.png")
    assert len(load_images(tmp_path / "one")) == 2
    save_image(tmp_path / "above" / "photos" / "cat" / "1.png")
    save_image(tmp_path / "above" / "photos" / "dog" / "1.png")
    with pytest.raises(UserError, match=r"one class folder \(photos\), which holds folders; .*above/photos"):
        load_images(tmp_path / "above")
    save_image(tmp_path / "loose" / "1.png")
    with pytest.raises(UserError, match="no class folders"):
        load_images(tmp_path / "loose")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images that can be read"):
        load_images(tmp_path / "empty")


def test_files_for_prediction(photos: Path, tmp_path: Path) -> None:
    odd = tmp_path / "no_extension"
    odd.write_bytes((photos / "cat" / "0.png").read_bytes())
    images, bad = load_image_files([photos, odd], size=6, channels=1)
    assert images.images.shape == (7, 1, 6, 6)
    assert images.labels.tolist() == [-1] * 7
    assert images.class_names == ()
    assert images.sources[0] == str(photos / "cat" / "0.png")
    assert images.sources[-1] == str(odd)
    assert bad == []


def test_files_for_prediction_that_are_bad(photos: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    with pytest.raises(UserError, match=r"broken.png is not an image"):
        load_image_files([photos, broken], size=6, channels=3)
    images, bad = load_image_files([photos, broken], size=6, channels=3, skip_bad=True)
    assert len(images) == 6
    assert [image.name for image in bad] == [str(broken)]
    with pytest.raises(UserError, match="no such file or folder"):
        load_image_files([tmp_path / "nowhere"], size=6, channels=3)
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match="no images in"):
        load_image_files([tmp_path / "void"], size=6, channels=3)
