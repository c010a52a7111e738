"""Files from elsewhere: nothing in them is executed, and what is wrong with them is said with their name."""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from gradmix import progress
from gradmix.cli import main
from gradmix.data import load_images
from gradmix.errors import UserError
from gradmix.training import RunFolder, train
from tests.training.tiny import CLASSES, FIELDS, shape_image, tiny_images, tiny_recipe


class Bomb:
    """Runs code when it is unpickled; here it makes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "no-data"))
    monkeypatch.chdir(tmp_path)
    yield
    progress.show(False)  # the command line has shown it


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(shape_image(kind, rng)).save(tmp_path / "photos" / kind / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must end with code 2; the one line that it says."""

    def check(*words: str | Path) -> str:
        assert main([str(word) for word in words]) == 2
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gradmix: ")]
        assert len(said) == 1, said
        return said[0]

    return check


def bomb_bytes(kind: str, trace: Path) -> bytes:
    """The bomb as a bare pickle, in torch's zip format, in its old format, or beside honest tensors."""
    if kind == "pickle":
        return pickle.dumps({"format": 1, "step": Bomb(trace)})
    buffer = io.BytesIO()
    content = {"format": 1, "step": 1, "network": {"conv1.weight": torch.zeros(3)}, "method": Bomb(trace)}
    torch.save(content, buffer, _use_new_zipfile_serialization=kind == "torch")
    return buffer.getvalue()


KINDS = ("pickle", "torch", "old torch")


def fields(**more: object) -> list[str]:
    return [word for name, value in (FIELDS | more).items() for word in (f"--{name}", str(value))]


def test_the_bomb_does_go_off_where_it_is_let(trace: Path) -> None:
    pickle.loads(bomb_bytes("pickle", trace))
    assert trace.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_as_checkpoint(kind: str, photos: Path, trace: Path, refused: Callable[..., str]) -> None:
    recipe = tiny_recipe(max_steps=1)
    run = RunFolder.create("run", recipe, {})
    images = tiny_images(8)
    train(images, recipe, run)
    run.state_file.write_bytes(bomb_bytes(kind, trace))
    with pytest.raises(UserError, match=r"last\.pt is damaged or not a checkpoint") as error:
        train(images, recipe, run)
    assert "\n" not in str(error.value)
    assert not trace.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_bomb_as_model(
    kind: str, command: str, photos: Path, trace: Path, refused: Callable[..., str]
) -> None:
    run = RunFolder.create("run", tiny_recipe(), {"data": {"source": "photos"}})
    run.model_file.write_bytes(bomb_bytes(kind, trace))
    more = [photos / "bar" / "0.png"] if command == "predict" else ["--known", photos, "--unknown", photos]
    assert "model.safetensors" in refused(command, "run", *more)
    assert not trace.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_bomb_as_first_weights(
    kind: str, name: str, photos: Path, trace: Path, refused: Callable[..., str]
) -> None:
    Path(name).write_bytes(bomb_bytes(kind, trace))
    assert name in refused("train", photos, "--out", "run", *fields(init=name))
    assert not trace.exists()
    assert not Path("run").exists()


def test_a_recipe_that_would_call_something(photos: Path, trace: Path, refused: Callable[..., str]) -> None:
    Path("mine.yaml").write_text(f"epochs: !!python/object/apply:pathlib.Path.touch ['{trace}']\n")
    assert "mine.yaml" in refused("train", photos, "--out", "run", "--recipe", "mine.yaml")
    assert not trace.exists()


def test_a_model_whose_header_lies(photos: Path, refused: Callable[..., str]) -> None:
    run = RunFolder.create("run", tiny_recipe(), {})
    for metadata in (None, {"gradmix": "[" * 100_000}, {"gradmix": '{"recipe": "__import__"}'}):
        save_file({"network.x": torch.zeros(2)}, run.model_file, metadata)
        assert "model.safetensors" in refused("predict", "run", photos / "bar" / "0.png")


def test_a_bomb_in_arrays(trace: Path, refused: Callable[..., str]) -> None:
    np.savez("set.npz", images=np.array([Bomb(trace)], dtype=object), labels=np.zeros(1, np.int64))
    assert "set.npz cannot be read" in refused("train", "./set.npz", "--out", "run", *fields())
    np.savez(
        "set.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.array([Bomb(trace)] * 2, dtype=object)
    )
    assert "set.npz cannot be read" in refused("data", "info", "./set.npz")
    with open("set.npz", "wb") as f:
        pickle.dump(Bomb(trace), f)
    assert "set.npz is not a readable .npz file" in refused("data", "check", "./set.npz")
    assert not trace.exists()


def test_a_bomb_in_a_cifar_batch(tmp_path: Path, trace: Path, refused: Callable[..., str]) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a", b"b"]}))
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(pickle.dumps({b"data": Bomb(trace), b"labels": [0]}))
    assert "data_batch_1 is not a plain CIFAR batch" in refused("train", folder, "--out", "run", *fields())
    assert not trace.exists()


def png_of(width: int, height: int) -> bytes:
    """A valid PNG of one-bit zeros, written row by row: hundreds of megapixels in some kilobytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        sum_of = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", sum_of)

    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    pixels = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("sides", [(10_000, 10_000), (20_000, 20_000), (100_000_000, 1)])
def test_a_decompression_bomb_among_the_images(
    sides: tuple[int, int], photos: Path, refused: Callable[..., str]
) -> None:
    bomb = photos / "disc" / "bomb.png"
    bomb.write_bytes(png_of(*sides))
    assert bomb.stat().st_size < 100_000
    for mapped in (True, False):
        with pytest.raises(UserError, match=r"disc/bomb\.png is too large"):
            load_images(photos, mapped=mapped)
    assert f"{bomb} is too large" in refused("train", photos, "--out", "run", *fields())
    assert not Path("run").exists()


@pytest.mark.parametrize("kind", ["png", "jpg", "webp", "gif", "tif", "bmp", "ppm", "tga"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5])
def test_a_truncated_image_is_named(
    kind: str, kept: float, photos: Path, refused: Callable[..., str]
) -> None:
    rng = np.random.default_rng(1)
    victim = photos / "disc" / f"victim.{kind}"
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(victim)
    whole = victim.read_bytes()
    victim.write_bytes(whole[: int(kept * len(whole))])
    for mapped in (True, False):
        with pytest.raises(UserError) as error:
            load_images(photos, mapped=mapped)
        assert str(error.value).startswith(f"{victim} ")
    assert str(victim) in refused("train", photos, "--out", "run", *fields())
    with pytest.warns(UserWarning, match=r"left out 1 unreadable image\(s\); the first: .*victim"):
        assert len(load_images(photos, skip_bad=True)) == 12


def test_arrays_that_no_memory_holds(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("set.npz", images=np.zeros((3000, 64, 64), np.uint8), labels=np.zeros(3000, np.int64))
    monkeypatch.setattr("gradmix.data.readers.npz_file.memory_bytes", lambda: 10_000_000)
    assert "set.npz: array 'images' has 0 GB, more than this" in refused("data", "info", "./set.npz")


def test_an_idx_file_that_promises_too_much(tmp_path: Path, refused: Callable[..., str]) -> None:
    import gzip

    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**15, 2**15)
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(header + bytes(10_000_000))
    )
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes(3)
    (tmp_path / "digits" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    line = refused("data", "info", tmp_path / "digits")
    assert "train-images-idx3-ubyte.gz is cut off or too long" in line
