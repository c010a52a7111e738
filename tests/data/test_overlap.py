from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from gradmix.data import ImageSet, find_identical, load_images, match_classes, refuse_identical
from gradmix.data.overlap import _hash_rows
from gradmix.errors import UserError


def slow_identical(known: ImageSet, unknown: ImageSet) -> list[tuple[int, int]]:
    """Every image by its digest, one by one."""
    first: dict[bytes, int] = {}
    for i, image in enumerate(known.images[:].numpy()):
        first.setdefault(hashlib.sha256(image.tobytes()).digest(), i)
    digests = [hashlib.sha256(image.tobytes()).digest() for image in unknown.images[:].numpy()]
    return [(first[digest], j) for j, digest in enumerate(digests) if digest in first]


@pytest.mark.parametrize("shape", [(1, 3, 3), (3, 4, 4), (3, 5, 7), (1, 1, 1)])
@pytest.mark.parametrize("at_once", [3, 10_000])
def test_as_the_obvious_comparison(
    shape: tuple[int, ...], at_once: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradmix.data.overlap._PAIRS_AT_ONCE", at_once)
    pool = torch.from_numpy(rng.integers(0, 256, (60, *shape), np.uint8))
    known = ImageSet.from_arrays(pool[torch.from_numpy(rng.integers(0, 40, 50))])
    unknown = ImageSet.from_arrays(pool[torch.from_numpy(rng.integers(20, 60, 45))])
    pairs = find_identical(known, unknown)
    assert pairs == slow_identical(known, unknown)
    assert pairs


def test_one_pixel_makes_the_difference(rng: np.random.Generator) -> None:
    image = torch.from_numpy(rng.integers(0, 255, (1, 3, 8, 8), np.uint8))
    known = ImageSet.from_arrays(image)
    for place in range(image.numel()):
        other = image.clone()
        other.view(-1)[place] += 1
        assert find_identical(known, ImageSet.from_arrays(other)) == []
    assert find_identical(known, ImageSet.from_arrays(image.clone())) == [(0, 0)]


def test_equal_numbers_are_only_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmix.data.overlap._hash_rows", lambda images: np.zeros(len(images), np.uint64))
    images = torch.arange(3, dtype=torch.uint8).reshape(3, 1, 1, 1)
    known, unknown = ImageSet.from_arrays(images[:1]), ImageSet.from_arrays(images)
    assert find_identical(known, unknown) == [(0, 0)]


def test_the_numbers_are_the_sum_in_the_docstring(rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (2, 1, 2, 8), np.uint8)
    weights = [int(w) | 1 for w in np.random.default_rng(0).integers(0, 2**64, 2, np.uint64)]
    for image, number in zip(images, _hash_rows(torch.from_numpy(images)), strict=True):
        words = np.frombuffer(image.tobytes(), np.uint64).tolist()
        assert int(number) == sum(w * x for w, x in zip(weights, words, strict=True)) % 2**64


def test_empty_sets_and_other_shapes() -> None:
    some = ImageSet.from_arrays(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    none = some.select([])
    assert find_identical(none, some) == find_identical(some, none) == find_identical(none, none) == []
    with pytest.raises(UserError, match="3 x 4 x 4 and 1 x 4 x 4 cannot be compared"):
        find_identical(some, some.convert(None, 1))


def test_images_on_disk(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "x").mkdir(parents=True)
    (tmp_path / "other" / "y").mkdir()
    (photos / "dog" / "1.png").rename(tmp_path / "other" / "x" / "a.png")
    copied = (photos / "cat" / "2.png").read_bytes()
    (tmp_path / "other" / "y" / "copy.png").write_bytes(copied)
    known, unknown = (load_images(f, size=8, mapped=True) for f in (photos, tmp_path / "other"))
    assert not isinstance(known.images, torch.Tensor)
    assert find_identical(known, unknown) == [(2, 1)]
    with pytest.raises(UserError) as caught:
        refuse_identical(known, unknown, "photos", "other")
    assert str(caught.value) == (
        "y/copy.png of other is the same image as cat/2.png of photos; "
        "an image cannot be known and unknown: take it out of one of them"
    )
    refuse_identical(known, unknown.select([0]), "photos", "other")
    twice = unknown.select([1, 1])
    with pytest.raises(UserError, match=r"\(2 such images\)"):
        refuse_identical(known, twice, "photos", "other")


def test_classes_in_the_order_of_the_model(photos: Path) -> None:
    images = load_images(photos)
    matched = match_classes(images, ("dog", "cat"), "photos")
    assert matched.class_names == ("dog", "cat")
    assert matched.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert [s.split("/")[0] for s in matched.sources] == [
        matched.class_names[label] for label in matched.labels.tolist()
    ]


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (("cat", "dog", "eel"), "no images of 'eel'"),
        (("cat",), "'dog' is not known"),
        (("cat", "dogs"), r"no images of 'dogs'; 'dog' is not known \(perhaps 'dogs' is meant\)"),
        (("a", "b"), "no images of 'a', 'b'; 'cat', 'dog' are not known"),
        (tuple("abcdefgh"), "'e' and 3 more; 'cat', 'dog' are not known"),
    ],
)
def test_classes_that_do_not_match(photos: Path, wanted: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=f"the classes of photos are not those of the model: .*{complaint}"):
        match_classes(load_images(photos), wanted, "photos")
