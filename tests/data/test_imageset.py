from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradmix.data import UNKNOWN, ImageSet
from gradmix.errors import UserError


def make(labels: list[int], n_classes: int = 4) -> ImageSet:
    """Image i is filled with the number i, so that it can be recognised."""
    n = len(labels)
    images = torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).repeat(1, 1, 2, 3)
    names = tuple(f"c{i}" for i in range(n_classes))
    return ImageSet(images, torch.tensor(labels, dtype=torch.int64), names, tuple(f"s{i}" for i in range(n)))


labelled = st.lists(st.integers(-1, 3), max_size=20).map(make)


@given(labelled, st.data())
def test_select_keeps_image_label_and_source_together(images: ImageSet, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(images) - 1), max_size=30)) if len(images) else []
    chosen = images.select(index)
    assert chosen.images[:, 0, 0, 0].tolist() == index
    assert chosen.labels.tolist() == [images.labels.tolist()[i] for i in index]
    assert chosen.sources == tuple(f"s{i}" for i in index)


@given(labelled)
def test_select_takes_a_mask(images: ImageSet) -> None:
    mask = images.labels == 2
    assert images.select(mask).images[:, 0, 0, 0].tolist() == mask.nonzero().flatten().tolist()


@given(labelled, st.permutations(range(4)), st.integers(0, 4), st.booleans())
def test_only_keeps_and_relabels(images: ImageSet, order: list[int], n: int, as_unknown: bool) -> None:
    classes = order[:n]
    kept = images.only(classes, as_unknown)
    expected = [(i, c) for i, c in enumerate(images.labels.tolist()) if c in classes]
    assert kept.images[:, 0, 0, 0].tolist() == [i for i, _ in expected]
    if as_unknown:
        assert kept.labels.tolist() == [UNKNOWN] * len(expected)
        assert kept.class_names == ()
    else:
        assert kept.labels.tolist() == [classes.index(c) for _, c in expected]
        assert kept.class_names == tuple(f"c{c}" for c in classes)


def test_counts_name_empty_classes_and_the_unknown() -> None:
    assert make([0, 0, 2, -1]).counts() == {"c0": 2, "c1": 0, "c2": 1, "c3": 0, "unknown": 1}
    assert sum(make([]).counts().values()) == 0


def test_the_hash_sees_pixels_labels_names_and_shape_but_not_sources() -> None:
    base = make([0, 1, 2])
    assert base.content_hash() == make([0, 1, 2]).content_hash()
    assert len(base.content_hash()) == 16
    other_pixels = base.images.clone()
    other_pixels[2, 0, 1, 1] += 1
    changed = [
        ImageSet(other_pixels, base.labels, base.class_names),
        make([0, 1, 3]),
        make([0, 1, 2], n_classes=5),
        ImageSet(base.images.view(3, 1, 3, 2), base.labels, base.class_names),
    ]
    assert len({base.content_hash(), *(c.content_hash() for c in changed)}) == 5
    assert ImageSet(base.images, base.labels, base.class_names).content_hash() == base.content_hash()


def test_the_hash_is_the_same_for_a_strided_view() -> None:
    pixels = torch.arange(24, dtype=torch.uint8).view(2, 2, 2, 3)
    strided = ImageSet(pixels.permute(0, 3, 1, 2), torch.zeros(2, dtype=torch.int64), ("a",))
    packed = ImageSet(strided.images.contiguous(), strided.labels, ("a",))
    assert strided.content_hash() == packed.content_hash()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"images": torch.zeros(2, 3, 4, 4)}, "float32"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8)}, "from_arrays"),
        ({"images": torch.zeros(2, 4, 4, 4, dtype=torch.uint8)}, r"\(2, 4, 4, 4\)"),
        ({"images": torch.zeros(2, 4, 4, dtype=torch.uint8)}, r"\(2, 4, 4\)"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "2 images but labels of shape"),
        ({"labels": torch.zeros(2, dtype=torch.int32)}, "int32"),
        ({"labels": torch.tensor([0, 2])}, "label 2 has no name"),
        ({"labels": torch.tensor([0, -2])}, "label -2"),
        ({"class_names": ("a", "a")}, "'a'"),
        ({"sources": ("x",)}, "1 sources"),
    ],
)
def test_a_wrong_set_is_refused_by_name(change: dict[str, object], complaint: str) -> None:
    right: dict[str, object] = {
        "images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        "labels": torch.tensor([0, 1]),
        "class_names": ("a", "b"),
    }
    ImageSet(**right)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=complaint):
        ImageSet(**right | change)  # type: ignore[arg-type]


def test_wrong_choices_are_refused() -> None:
    images = make([0, 1])
    for wrong in ([4], [-1], [1, 1]):
        with pytest.raises(UserError, match="class"):
            images.only(wrong)
    with pytest.raises(UserError, match="outside the 2 images"):
        images.select([2])
    with pytest.raises(UserError, match="channels"):
        images.convert(None, 2)
    with pytest.raises(UserError, match="size"):
        images.convert(0, None)


def test_converted_is_the_same_object_when_nothing_is_to_do() -> None:
    images = make([0, 1])
    assert images.convert(None, 1) is images
    assert images.convert(4, 3).images.shape == (2, 3, 4, 4)
    assert images.convert(4, 3).sources == images.sources
