"""A set on disk is, to everyone who looks, the same set in memory."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gradmix.data import ImageSet, load_images
from gradmix.data.cache.pixel_file import map_above, parse_bytes, should_map
from gradmix.data.mapped_images import MappedImages, PixelMap, iterate_parts
from gradmix.data.resize import to_gray
from gradmix.errors import UserError
from gradmix.machine import memory_bytes
from gradmix.views import Normalizer


@pytest.fixture
def plain(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(0, 256, (23, 3, 9, 7), np.uint8))


@pytest.fixture
def mapped(plain: torch.Tensor, tmp_path: Path) -> MappedImages:
    file = tmp_path / "pixels.u8"
    file.write_bytes(plain.numpy().tobytes())
    return MappedImages(PixelMap(file, (23, 3, 9, 7)), torch.arange(23))


@pytest.mark.parametrize(
    "index",
    [
        *(0, -1, slice(None), slice(3, 9), slice(20, 99), slice(None, None, 4), slice(5, 5)),
        *([4, 4, 0], torch.tensor([22, 0, -3]), torch.tensor([], dtype=torch.int64)),
        *(torch.arange(23) % 3 == 0, torch.tensor([[1, 2], [3, 4]]), torch.tensor(7)),
    ],
    ids=str,
)
def test_indexing_is_that_of_a_tensor(index: object, plain: torch.Tensor, mapped: MappedImages) -> None:
    read = mapped[index]  # type: ignore[index]
    assert torch.equal(read, plain[index])  # type: ignore[index]
    read.fill_(0)  # a copy: the file is as it was
    assert torch.equal(mapped[:], plain)


@pytest.mark.parametrize("index", [23, -24, [0, 23], torch.tensor([-24])])
def test_an_index_outside_is_an_error(index: object, mapped: MappedImages) -> None:
    with pytest.raises(IndexError):
        mapped[index]  # type: ignore[index]


def test_shape_length_and_kind(plain: torch.Tensor, mapped: MappedImages) -> None:
    assert (mapped.shape, len(mapped), mapped.dtype, mapped.ndim) == (plain.shape, 23, plain.dtype, 4)
    assert torch.equal(mapped.to("cpu"), plain)


def test_long_readings_are_done_in_parts(
    plain: torch.Tensor, mapped: MappedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradmix.data.mapped_images._BYTES_AT_ONCE", 3 * 9 * 7 * 4)
    monkeypatch.setattr("gradmix.data.mapped_images._IMAGES_CONVERTED", 5)
    assert torch.equal(mapped[:], plain)
    assert torch.equal(mapped.convert(None, 1)[2:], to_gray(plain)[2:])
    assert [len(part) for part in iterate_parts(mapped)] == [4] * 5 + [3]
    assert torch.equal(torch.cat(list(iterate_parts(mapped))), torch.cat(list(iterate_parts(plain))))


@pytest.mark.parametrize(
    ("rows", "releases"),
    [
        (range(23), 6),  # 23 pieces, four at a time
        ([0, 0, 0, 1, 1, 1, 2, 3], 1),
        ([0, 1, 0, 1, 0], 2),  # back and forth counts each time
        ([22, 3, 17, 5], 1),
        ([7], 1),
        ([], 0),
    ],
)
def test_scattered_rows_never_map_much_at_once(
    plain: torch.Tensor,
    mapped: MappedImages,
    monkeypatch: pytest.MonkeyPatch,
    rows: Sequence[int],
    releases: int,
) -> None:
    monkeypatch.setattr("gradmix.data.mapped_images._PIECE", 3 * 9 * 7)  # one image
    monkeypatch.setattr("gradmix.data.mapped_images._PIECES_AT_ONCE", 4)
    released: list[PixelMap] = []
    monkeypatch.setattr(PixelMap, "_release", lambda pixels: released.append(pixels))
    assert torch.equal(mapped[torch.tensor(rows, dtype=torch.long)], plain[list(rows)])
    assert len(released) == releases


def test_pages_are_given_back_after_each_reading(plain: torch.Tensor, mapped: MappedImages) -> None:
    if not hasattr(mmap, "MADV_DONTNEED"):
        return  # there is no such thing to be tested
    assert torch.equal(mapped[:], plain)
    lines = Path("/proc/self/smaps").read_text().splitlines() if Path("/proc/self/smaps").exists() else []
    at = next((i for i, line in enumerate(lines) if str(mapped.source.file) in line), None)
    if at is not None:
        resident = next(line for line in lines[at:] if line.startswith("Rss:"))
        assert resident.split()[1] == "0"


def test_other_processes_map_the_same_file(plain: torch.Tensor, mapped: MappedImages) -> None:
    sent = pickle.dumps(mapped.select(torch.tensor([5, 1])))
    assert len(sent) < 2000
    assert torch.equal(pickle.loads(sent)[:], plain[[5, 1]])


def as_sets(plain: torch.Tensor, mapped: MappedImages) -> tuple[ImageSet, ImageSet]:
    in_memory = ImageSet(plain, torch.arange(23) % 4 - 1, ("a", "b", "c"), tuple(map(str, range(23))))
    return in_memory, replace(in_memory, images=mapped)


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images,
        lambda images: images.select([3, 2, 2]),
        lambda images: images.select(images.labels == 1).select([1]),
        lambda images: images.only([2, 0]),
        lambda images: images.only([1], as_unknown=True),
        lambda images: images.convert(5, None),
        lambda images: images.convert(None, 1).convert(4, 3).convert(6, None).select([2, 7]),
    ],
)
def test_a_set_on_disk_behaves_as_in_memory_and_stays_there(
    change: object, plain: torch.Tensor, mapped: MappedImages
) -> None:
    in_memory, on_disk = (change(images) for images in as_sets(plain, mapped))  # type: ignore[operator]
    assert isinstance(on_disk.images, MappedImages)
    assert on_disk.images.source is mapped.source
    assert torch.equal(on_disk.images[:], in_memory.images)
    assert on_disk.images.shape == in_memory.images.shape
    assert torch.equal(on_disk.labels, in_memory.labels)
    assert on_disk.sources == in_memory.sources
    assert on_disk.content_hash() == in_memory.content_hash()
    assert Normalizer.fit(on_disk.images) == Normalizer.fit(in_memory.images)


def test_converting_to_what_they_are_changes_nothing(plain: torch.Tensor, mapped: MappedImages) -> None:
    _, on_disk = as_sets(plain, mapped)
    assert on_disk.convert(None, 3) is on_disk


def test_sizes_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADMIX_MAP_ABOVE", raising=False)
    assert 2**27 < memory_bytes() < 2**50
    assert map_above() == memory_bytes() // 4
    monkeypatch.setenv("GRADMIX_MAP_ABOVE", "1.5K")
    assert not should_map(1536)
    assert should_map(1537)
    with pytest.raises(UserError, match="GRADMIX_MAP_ABOVE is 'much'; give a size such as 500M"):
        parse_bytes("much")


def test_what_a_container_may_use_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("gradmix.machine._CONTAINER_LIMITS", (str(limit),))
    limit.write_text("1048576\n")
    assert memory_bytes() == 1048576
    limit.write_text("max\n")
    assert memory_bytes() > 1048576


def test_loading_maps_when_asked_or_when_large(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = load_images(photos)
    assert isinstance(in_memory.images, torch.Tensor)
    assert isinstance(load_images(photos, mapped=True).images, MappedImages)
    monkeypatch.setenv("GRADMIX_MAP_ABOVE", "100")
    large = load_images(photos)
    assert isinstance(large.images, MappedImages)
    assert large.content_hash() == in_memory.content_hash()
    assert large.sources == in_memory.sources
    assert isinstance(load_images(photos, mapped=False).images, torch.Tensor)
