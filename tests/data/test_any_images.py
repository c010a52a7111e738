"""One image is one image, whatever it comes as; a stack is a stack; everything else is refused by name."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gradmix.data import ImageFormat, ImageSet, as_images, as_labeled_images, iterate_images, read_targets
from gradmix.data.array_layout import to_stack
from gradmix.errors import UserError

COLOR, GRAY = ImageFormat(16, 3), ImageFormat(16, 1)


def pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def count(shape: tuple[int, ...], image_format: ImageFormat = COLOR, given: int | None = None) -> int:
    """How many images an array of that shape is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return len(as_images(pixels(*shape), image_format, given))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((24, 20), 1),  # gray
        ((24, 20, 3), 1),
        ((24, 20, 4), 1),
        ((24, 20, 1), 1),
        ((1, 24, 20), 1),  # one gray image, either way
        ((2, 24, 20), 2),  # gray ones
        ((4, 24, 20), 4),
        ((50, 24, 20), 50),
        ((5, 24, 20, 3), 5),
        ((5, 24, 20, 4), 5),
        ((5, 3, 24, 20), 5),
        ((1, 3, 24, 20), 1),
    ],
)
def test_how_many_images_an_array_is(shape: tuple[int, ...], expected: int) -> None:
    assert count(shape) == expected
    assert len(as_images(torch.from_numpy(pixels(*shape)), COLOR)) == expected


def test_three_gray_images_and_one_color_image_have_one_shape() -> None:
    array = pixels(3, 24, 20)
    one = as_images(torch.from_numpy(array), COLOR)  # torch: channels first, without a word
    assert torch.equal(one.images[:], as_images(array[None], COLOR).images[:])
    said = r"shape \(3, 24, 20\) are read as one image .* \(3, 1, 24, 20\) for three"
    with pytest.warns(UserWarning, match=said):
        assert torch.equal(as_images(array, COLOR).images[:], one.images[:])
    for given in (array, torch.from_numpy(array)):
        with pytest.warns(UserWarning, match="read as three gray images; give .1, 3, 24, 20. for one image"):
            three = as_images(given, GRAY)
        assert torch.equal(three.images[:], as_images(array[..., None], GRAY).images[:])
    assert count((3, 24, 20), COLOR, given=3) == 3  # labels say how many
    assert count((3, 24, 20), GRAY, given=3) == 3


def test_labels_decide_what_a_stack_is() -> None:
    assert count((24, 20, 3), given=24) == 24
    images, classes = as_labeled_images(pixels(3, 24, 20), ["b", "a", "b"], COLOR)
    assert (len(images), images.labels.tolist(), classes.tolist()) == (3, [1, 0, 1], ["a", "b"])
    with pytest.raises(UserError, match="1 images but y of shape"):
        as_labeled_images(pixels(24, 20, 3), ["a", "b"], COLOR)


@pytest.mark.parametrize("shape", [(3, 20, 3), (1, 20, 3), (3, 20, 1), (1, 20, 4)])
def test_channels_first_or_last_is_refused_where_both_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=re.escape(f"shape {shape} could have its channels first or last")):
        as_images(pixels(*shape), COLOR)


@pytest.mark.parametrize("shape", [(12, 256), (12, 768)])
def test_flattened_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="flattened ones have lost"):
        as_images(pixels(*shape), COLOR)
    with pytest.raises(UserError, match="flattened ones have lost"):
        as_images(pixels(12, 300), COLOR, count=12)


def test_transparency_is_laid_on_white_as_pillow_does() -> None:
    array = pixels(16, 16, 4)
    expected = as_images(Image.fromarray(array), COLOR).images[:]
    assert torch.equal(as_images(array, COLOR).images[:], expected)
    assert torch.equal(as_images(array[None], COLOR).images[:], expected)
    every = np.stack(np.meshgrid(np.arange(256), np.arange(256)), -1).astype(np.uint8)  # value and alpha
    rgba = np.concatenate([every[..., :1].repeat(3, 2), every[..., 1:]], 2)
    white = Image.new("RGBA", (256, 256), "white")
    white.alpha_composite(Image.fromarray(rgba))
    ours = to_stack(rgba, COLOR)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(ours, np.asarray(white.convert("RGB")))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One picture in every mode that matters, and a photograph that lies on its side."""
    color = Image.fromarray(pixels(30, 40, 3))
    rgba = Image.fromarray(pixels(30, 40, 4))
    found = {
        "rgb.png": color,
        "rgba.png": rgba,
        "palette.png": color.convert("P"),
        "gray.png": color.convert("L"),
        "deep.png": Image.fromarray(pixels(30, 40).astype(np.uint16) * 257),
        "one.png": color.convert("1"),
    }
    for name, image in found.items():
        image.save(tmp_path / name)
    turned = Image.Exif()
    turned[0x0112] = 6
    color.save(tmp_path / "turned.jpg", exif=turned)
    return {name: tmp_path / name for name in (*found, "turned.jpg")}


@pytest.mark.parametrize("image_format", [COLOR, GRAY])
def test_a_picture_is_what_its_file_is(files: dict[str, Path], image_format: ImageFormat) -> None:
    for name, file in files.items():
        expected = as_images(file, image_format).images[:]
        assert expected.shape[0] == 1
        with Image.open(file) as opened:
            kept = (opened.size, opened.mode, opened.tobytes(), dict(opened.info))
            found = as_images(opened, image_format)
            assert torch.equal(found.images[:], expected), name
            assert found.sources == (str(file),)
            assert (opened.size, opened.mode, opened.tobytes(), dict(opened.info)) == kept  # unchanged
        content = file.read_bytes()
        kinds: list[Any] = [content, bytearray(content), memoryview(content), io.BytesIO(content), str(file)]
        with open(file, "rb") as stream:
            for given in (*kinds, stream, [content], (file,), np.asarray([str(file)]), pd.Series([file])):
                found = as_images(given, image_format)
                assert torch.equal(found.images[:], expected), (name, type(given))


def mixed(files: dict[str, Path]) -> list[Any]:
    return [
        files["rgb.png"],
        Image.open(files["gray.png"]),
        str(files["rgba.png"]),
        files["turned.jpg"].read_bytes(),
        pixels(30, 40, 3),
        torch.from_numpy(pixels(3, 9, 9)),
        pixels(12, 12),
        io.BytesIO(files["palette.png"].read_bytes()),
    ]


def test_lists_mix_everything(files: dict[str, Path]) -> None:
    expected = torch.cat([as_images([item], COLOR).images[:] for item in mixed(files)])
    objects = np.empty(8, dtype=object)
    objects[:] = mixed(files)
    for given in (
        mixed(files),
        tuple(mixed(files)),
        pd.Series(mixed(files)),
        pd.DataFrame({"image": mixed(files)}),
        objects,
        iter(mixed(files)),
        (item for item in mixed(files)),
        map(mixed(files).__getitem__, range(8)),
        dict(enumerate(mixed(files))).values(),
    ):
        found = as_images(given, COLOR)
        assert torch.equal(found.images[:], expected), type(given)
        assert found.sources[0] == str(files["rgb.png"])
        assert found.sources[3] == ""


def test_images_of_different_sizes_in_a_list() -> None:
    found = as_images([pixels(20, 30, 3), pixels(40, 17, 3), pixels(20, 30, 3)], COLOR)
    assert found.images.shape == (3, 3, 16, 16)
    assert torch.equal(found.images[0], found.images[2])
    assert torch.equal(found.images[1], as_images(pixels(40, 17, 3), COLOR).images[0])
    assert len(as_images([pixels(3, 20, 20), pixels(3, 20, 20)], COLOR)) == 2  # each is one image


def test_iterators_are_read_in_parts() -> None:
    taken = []

    def pictures() -> Iterator[NDArray[np.uint8]]:
        for i in range(1100):
            taken.append(i)
            yield np.full((8, 8), i % 256, dtype=np.uint8)

    parts = iterate_images(pictures(), ImageFormat(8, 1))
    first = next(parts)
    assert (len(first), len(taken)) == (512, 512)
    rest = list(parts)
    assert [len(part) for part in rest] == [512, 76]
    assert int(rest[1].images[-1, 0, 0, 0]) == 1099 % 256
    with pytest.raises(UserError, match="the iterator is empty, or was used up before"):
        as_images(iter([]), COLOR)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([pixels(8, 8, 3), pixels(8, 8, 3)])


class Modes(Dataset[Any]):
    """Pillow's images of several modes, as a folder of one's own gives them."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return Image.open(self.files[i]), i


def test_data_sets(files: dict[str, Path]) -> None:
    assert len(as_images(Stream(), COLOR)) == 2
    modes = Modes([files[name] for name in ("rgb.png", "rgba.png", "palette.png", "gray.png", "deep.png")])
    found = as_images(modes, ImageFormat(30, 3)).images[:]
    expected = as_images(modes.files, ImageFormat(30, 3)).images[
        :
    ]  # as high as the pictures: nothing is resized
    assert torch.equal(found, expected)
    with pytest.raises(UserError, match=r"give its data set \(loader.dataset\)"):
        as_images(DataLoader(modes), COLOR)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("https://example.org/a.jpg", r"https://example.org/a.jpg is an address.*download it first"),
        (Path("https://example.org/a.jpg"), r"is an address.*download it first"),
        (["http://example.org/a.jpg"], r"is an address.*download it first"),
        ("s3://bucket/a.jpg", r"is an address.*download it first"),
        ("data:image/png;base64,aaaa", r"is an address"),
        (iter(["ftp://example.org/a.jpg"]), r"is an address"),
        ("hf://me/otters", r"is an address on the Hub.*gradmix data get"),
        ("nowhere.png", "no such file or folder: nowhere.png"),
        (iter(["nowhere.png"]), "no such file or folder: nowhere.png"),
        (None, "this is of type NoneType; accepted are paths"),
        (7, "this is of type int; accepted"),
        ({"image": 1}, "this is of type dict; accepted"),
        ({1, 2}, "this is of type set; accepted"),
        (range(3), "this is of type range; accepted"),
        ([None], "image 0 is of type NoneType, which is no image; accepted"),
        ([pixels(8, 8), 4.5], "image 1 is of type float, which is no image; accepted"),
        (pd.Series(["a.png", float("nan")]), "no such file or folder|image 1 is of type float"),
        ([("a.png", 1)], "image 0 is of type tuple, which is no image"),
        ([], "no images: the list is empty"),
        (np.array([]), r"images are float64; accepted"),
        (np.float32(1), "this is of type float32; accepted"),
        ([pixels(5, 8, 8)], r"image 0 has shape \(5, 8, 8\), which is no image"),
        (b"", r"image 0 is empty \(0 bytes\)"),
        ([b"not an image"], "image 0 is not an image in a known format"),
        (io.StringIO("text"), "image 0 is a file that gives str, not bytes: open it with 'rb'"),
        ([pixels(8, 8) / 255], "images are float64.*scale fractions by 255"),
        (pd.DataFrame({"a": [1], "b": [2]}), r"a table of 2 columns \(a, b\); give the one that holds"),
        ([[[1, 2], [3]], [[1, 2]]], "the images have different sizes"),
    ],
)
def test_everything_else_is_refused_in_one_line(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        as_images(given, COLOR)
    assert "\n" not in str(caught.value)


def test_folders_among_single_images_are_refused(files: dict[str, Path]) -> None:
    folder = files["rgb.png"].parent
    with pytest.raises(UserError, match="is a folder among single images"):
        as_images([pixels(8, 8), folder], COLOR)
    assert len(as_images([folder, files["rgb.png"]], COLOR)) == 8  # paths alone may be folders


def test_a_file_whose_name_looks_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab:").mkdir()
    Image.fromarray(pixels(8, 8, 3)).save(tmp_path / "ab:" / "a.png")
    assert len(as_images("ab:/a.png", COLOR)) == 1
    with pytest.raises(UserError, match="no such file or folder"):
        as_images("C:/nothing.png", COLOR)


def test_labels_of_every_kind() -> None:
    for given in (["a", "b"], ("a", "b"), np.asarray(["a", "b"], dtype=object), pd.Series(["a", "b"]),
                  pd.Categorical(["a", "b"]), iter(["a", "b"]), pd.DataFrame({"y": ["a", "b"]})):  # fmt: skip
        found = read_targets(given)
        assert (found.dtype.kind, found.tolist()) == ("U", ["a", "b"])
    assert read_targets(pd.Series([3, 4], dtype=object)).dtype.kind == "i"
    with pytest.raises(UserError, match="y mixes 'a' and 3"):
        read_targets(np.asarray(["a", 3], dtype=object))
    with pytest.raises(UserError, match="y mixes 'a' and nan"):
        read_targets(pd.Series(["a", float("nan")], dtype=object))
    with pytest.raises(UserError, match=r"y has shape \(2, 2\)"):
        read_targets([[1, 2], [3, 4]])


def test_image_sets_stay_as_they_are() -> None:
    images = ImageSet.from_arrays(pixels(4, 16, 16, 3))
    assert as_images(images, COLOR) is images
