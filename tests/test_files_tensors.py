"""Tensors in memory of their own: what the library reads, nothing torn, nothing that follows the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gradmix import files
from gradmix.files import DamagedFile, UnsettledFile, read_tensors


def some_tensors(seed: int = 0) -> dict[str, Tensor]:
    noise = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed))
    kinds = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
    )
    kinds += (torch.int8, torch.uint8, torch.bool, torch.complex64)
    tensors = {str(kind).removeprefix("torch."): (noise * 9).to(kind) for kind in kinds}
    return tensors | {"number": torch.tensor(3 + seed), "empty": torch.empty(0, 4), "one": torch.ones(1, 1)}


def written(path: Path, seed: int = 0) -> Path:
    save_file(some_tensors(seed), path, {"kind": "shapes", "seed": str(seed)})
    return path


def as_cp_does(source: Path, path: Path) -> None:
    """Over the file, not in its place."""
    with open(path, "wb") as f:
        f.write(source.read_bytes())


def test_it_reads_what_the_library_reads(tmp_path: Path) -> None:
    file = written(tmp_path / "a.safetensors")
    header, tensors = read_tensors(file)
    assert header == {"kind": "shapes", "seed": "0"}
    found = load_file(file)
    assert tensors.keys() == found.keys()
    for name, value in found.items():
        assert tensors[name].dtype == value.dtype
        assert tensors[name].shape == value.shape
        assert torch.equal(tensors[name], value), name
    save_file({"x": torch.ones(2)}, file)
    assert read_tensors(file)[0] == {}


def test_what_was_read_does_not_follow_the_file(tmp_path: Path) -> None:
    file, other = written(tmp_path / "a.safetensors"), written(tmp_path / "b.safetensors", seed=1)
    _, tensors = read_tensors(file)
    assert str(file) not in Path("/proc/self/maps").read_text()
    as_cp_does(other, file)
    os.truncate(file, 10)
    for name, value in some_tensors().items():
        assert torch.equal(tensors[name], value), name


def with_header(header: object, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def one(**about: object) -> bytes:
    return with_header({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | about}, bytes(8))


BROKEN = {
    "empty": b"",
    "no length": b"\1\0\0",
    "no header": (10).to_bytes(8, "little"),
    "endless header": (2**63).to_bytes(8, "little") + b"{}",
    "no json": with_header(b"{" * 9),
    "deep json": with_header(b"[" * 100_000),
    "no utf-8": with_header(b'{"\xff": 1}'),
    "a list": with_header([1]),
    "numbers in the words": with_header({"__metadata__": {"a": 1}}),
    "a list of words": with_header({"__metadata__": ["a"]}),
    "no place": with_header({"x": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "a number": with_header({"x": 3}, bytes(8)),
    "odd dtype": one(dtype="F99"),
    "unhashable dtype": one(dtype=["F32"]),
    "negative": one(shape=[-2], data_offsets=[8, 0]),
    "two negatives": one(shape=[-1, -2]),
    "truths": one(shape=[True, 2]),
    "too large": one(shape=[2**40]),
    "beyond the end": one(shape=[4], data_offsets=[0, 16]),
    "not all of it": one(shape=[1], data_offsets=[0, 4]),
    "a gap": one(shape=[1], data_offsets=[4, 8]),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_damaged_files_are_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(content)
    with pytest.raises(DamagedFile) as error:
        read_tensors(file)
    assert "\n" not in str(error.value)


def test_every_shorter_or_longer_file_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.safetensors").read_bytes()
    part = tmp_path / "part"
    for length in {*range(0, len(whole), 97), len(whole) - 1}:
        part.write_bytes(whole[:length])
        with pytest.raises(DamagedFile):
            read_tensors(part)
    part.write_bytes(whole + b"\0")
    with pytest.raises(DamagedFile):
        read_tensors(part)


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_file_that_is_overwritten_while_it_is_read_is_read_again(
    keep_times: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size, so that nothing but its times tells it: and ``cp -p`` sets one of those."""
    file, other = written(tmp_path / "a.safetensors"), written(tmp_path / "b.safetensors", seed=1)
    assert file.stat().st_size == other.stat().st_size
    old = file.stat()
    read_tensor, reads = files._read_tensor, list[int]()

    def overwrite_and_read(*where: Any) -> Tensor:
        reads.append(1)
        if len(reads) == 5:
            as_cp_does(other, file)
            if keep_times:
                os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
        return read_tensor(*where)

    monkeypatch.setattr(files, "_read_tensor", overwrite_and_read)
    header, tensors = read_tensors(file)
    assert header["seed"] == "1"
    for name, value in some_tensors(1).items():
        assert torch.equal(tensors[name], value), name


def test_a_file_that_never_rests_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.safetensors")
    read_tensor = files._read_tensor

    def touch_and_read(*where: Any) -> Tensor:
        file.touch()
        return read_tensor(*where)

    monkeypatch.setattr(files, "_read_tensor", touch_and_read)
    monkeypatch.setattr(files, "_READ_TRIES", 3)
    with pytest.raises(UnsettledFile, match="again and again"):
        read_tensors(file)


def test_a_time_to_come_is_no_reason_to_wait(tmp_path: Path) -> None:
    file = written(tmp_path / "a.safetensors")
    os.utime(file, (2e9 * 2, 2e9 * 2))
    assert read_tensors(file)[0]["seed"] == "0"


MEASURE = """
import resource, sys
from gradmix.files import read_tensors
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = read_tensors(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_reading_takes_the_memory_of_the_file_once(tmp_path: Path) -> None:
    file, megabytes = tmp_path / "a.safetensors", 128
    save_file({str(i): torch.zeros(megabytes * 2**18 // 4) for i in range(4)}, file)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(file)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) / 1024 < 1.1 * megabytes
