"""The file of decoded pixels: never stale, never torn, decoded by one process for all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from gradmix.data import cache_root, load_images
from gradmix.data.cache import pixel_file
from gradmix.data.inspection import check_data
from gradmix.data.mapped_images import MappedImages
from gradmix.errors import UserError

fork = multiprocessing.get_context("fork")


def entries() -> list[Path]:
    return sorted(path for path in (cache_root() / "pixels").iterdir() if not path.name.startswith("."))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_file, "_BYTES_PER_PART", 2 * 3 * 8 * 8)  # two images at a time


def hash_of(photos: Path, **how: int) -> str:
    return load_images(photos, mapped=True, **how).content_hash()


def test_written_in_parts_it_is_the_same(photos: Path, small_parts: None) -> None:
    (photos / "cat" / "1.png").write_bytes(b"not an image")
    with pytest.warns(UserWarning, match="left out 1 unreadable"):
        mapped = load_images(photos, mapped=True, skip_bad=True)
    with pytest.warns(UserWarning, match="left out 1 unreadable"):
        in_memory = load_images(photos, mapped=False, skip_bad=True)
    assert isinstance(mapped.images, MappedImages)
    assert mapped.content_hash() == in_memory.content_hash()
    assert mapped.sources == in_memory.sources
    assert len(entries()) == 1
    assert {file.name for file in entries()[0].iterdir()} == {"about.json", "pixels.u8"}
    with pytest.raises(UserError, match=r"cat/1\.png is not an image in a known format"):
        load_images(photos, mapped=True)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_colour_and_size_as_in_memory(
    mode: str, channels: int | None, save_image: Callable[..., None], tmp_path: Path, small_parts: None
) -> None:
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/1.png", "b/2.png"):
        save_image(tmp_path / "photos" / name, 9, 12, mode)
    mapped, in_memory = (
        load_images(tmp_path / "photos", mapped=mapped, channels=channels) for mapped in (True, False)
    )
    assert mapped.images.shape == in_memory.images.shape
    assert torch.equal(mapped.images[:], in_memory.images[:])


def test_nothing_is_decoded_twice_and_nothing_stale_is_read(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hash_of(photos, size=8)
    with monkeypatch.context() as patch:
        patch.setattr(pixel_file, "decode_many", None)  # would fail
        assert hash_of(photos, size=8) == first
    assert hash_of(photos, size=6) != first
    (photos / "cat" / "0.png").write_bytes((photos / "dog" / "0.png").read_bytes())
    assert hash_of(photos, size=8) != first
    assert hash_of(photos, size=8, channels=1) != first
    assert len(entries()) == 4


@pytest.mark.parametrize("damage", ["cut", "no about", "bad about", "emptied"])
def test_a_damaged_entry_is_decoded_again(damage: str, photos: Path) -> None:
    before = hash_of(photos)
    pixels, about = entries()[0] / "pixels.u8", entries()[0] / "about.json"
    if damage == "cut":
        os.truncate(pixels, 100)
    elif damage == "no about":
        about.unlink()
    elif damage == "bad about":
        about.write_text('{"size": "x"}')
    else:
        shutil.rmtree(entries()[0])
        entries_folder = cache_root() / "pixels"
        assert entries_folder.is_dir()
    assert hash_of(photos) == before


def test_checking_looks_at_the_files_themselves(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_MAP_ABOVE", "0")
    image, about = photos / "cat" / "0.png", (photos / "cat" / "0.png").stat()
    load_images(photos)
    whole = image.read_bytes()
    image.write_bytes(whole[:60] + bytes(len(whole) - 60))
    os.utime(image, ns=(about.st_atime_ns, about.st_mtime_ns))  # as a dying disk would: nothing to be seen
    assert check_data(photos).broken


def test_images_that_change_meanwhile(
    photos: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = pixel_file.decode_many

    def touching(*args: object, **kwargs: object) -> object:
        os.utime(photos / "dog" / "2.png", ns=(1, 1))
        return decode(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(pixel_file, "decode_many", touching)
    with pytest.raises(UserError, match="changed while they were read; try again"):
        load_images(photos, mapped=True)
    assert entries() == []


class Stopped(BaseException):
    """Stands for a kill: nothing after it is executed."""


def test_a_stopped_decoding_goes_on_where_it_was(
    photos: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_images(photos, mapped=False).content_hash()
    decode = pixel_file.decode_many
    seen: list[int] = []

    def stopping(files: Sequence[Path], *args: object, **kwargs: object) -> object:
        if len(seen) == 2:
            raise Stopped
        seen.append(len(files))
        return decode(files, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(pixel_file, "decode_many", stopping)
    with pytest.raises(Stopped):
        load_images(photos, mapped=True)
    assert entries() == []
    part = next(path for path in (cache_root() / "pixels").iterdir() if path.suffix == ".part")
    with open(part / "pixels.u8", "ab") as f:
        f.write(b"half an image")  # what it was writing
    (part / ".about.json.x.part").write_text('{"do')
    seen.clear()
    assert load_images(photos, mapped=True).content_hash() == expected
    assert seen == [2]  # of six images, four were on disk
    assert {file.name for file in entries()[0].iterdir()} == {"about.json", "pixels.u8"}


def test_a_full_disk(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    with monkeypatch.context() as patch:
        patch.setattr("gradmix.data.cache.folders.shutil.disk_usage", lambda path: usage(10))
        with pytest.raises(UserError, match=r"decoding 6 images needs 0\.0 GB in the cache, but .* GB free"):
            load_images(photos, mapped=True)
    with monkeypatch.context() as patch:

        def full(out: object, decoded: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(pixel_file, "_append", full)
        with pytest.raises(
            UserError, match=r"could not write .*: No space left on device; GRADMIX_CACHE can"
        ):
            load_images(photos, mapped=True)
    assert entries() == []
    load_images(photos, mapped=True)
    assert len(entries()) == 1


def test_only_one_process_decodes_and_all_get_the_same(
    photos: Path, tmp_path: Path, small_parts: None
) -> None:
    decode, log = pixel_file.decode_many, tmp_path / "decoded"

    def worker(answers: multiprocessing.SimpleQueue[str]) -> None:
        def logging(files: Sequence[Path], *args: object, **kwargs: object) -> object:
            with open(log, "a") as f:
                f.write("x" * len(files))
            time.sleep(0.05)
            return decode(files, *args, **kwargs)  # type: ignore[arg-type]

        pixel_file.decode_many = logging  # type: ignore[assignment]
        answers.put(hash_of(photos))

    answers = fork.SimpleQueue()
    workers = [fork.Process(target=worker, args=(answers,)) for _ in range(3)]
    for process in workers:
        process.start()
    hashes = {answers.get() for _ in workers}
    for process in workers:
        process.join()
    assert hashes == {load_images(photos, mapped=False).content_hash()}
    assert len(log.read_text()) == 6


def test_killed_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes and SIGKILL, until one gets through."""
    monkeypatch.setattr(pixel_file, "_BYTES_PER_PART", 3 * 16 * 16)
    for i in range(60):
        file = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (i, 2 * i, 255 - i)).save(file)
    expected = load_images(tmp_path / "photos", mapped=False).content_hash()
    chance, kills = random.Random(0), 0
    while True:
        process = fork.Process(target=hash_of, args=(tmp_path / "photos",))
        process.start()
        # From too short to long enough by small steps: killed all along the work, on a fast machine too.
        process.join(chance.uniform(0.001, 0.003) * 1.2**kills)
        if not process.is_alive():
            break
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        kills += 1
        assert kills < 200
    assert kills > 2
    assert len(entries()) == 1
    assert hash_of(tmp_path / "photos") == expected
