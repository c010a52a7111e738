from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmix.data import load_images
from gradmix.data.readers.plain_pickle import NotPlain, load_plain
from gradmix.errors import UserError


class Calls:
    """Pickles to a call of ``function(*arguments)``, which an ordinary unpickler would make."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_data_comes_through(protocol: int) -> None:
    rows = np.arange(24, dtype=np.uint8).reshape(4, 6)
    written = {b"data": rows, b"labels": [1, 2], "batch_label": "one", b"raw": b"\x00\xff"}
    read = load_plain(pickle.dumps(written, protocol=protocol))
    assert np.array_equal(read["data"], rows)
    assert read["data"].dtype == np.uint8
    assert read["labels"] == [1, 2]
    assert read["raw"] == b"\x00\xff"
    turned = load_plain(pickle.dumps({b"data": np.asfortranarray(rows)}, protocol=protocol))
    assert np.array_equal(turned["data"], rows)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "bomb",
    [
        lambda target: Calls(os.system, f"touch {target}"),
        lambda target: Calls(open, str(target), "w"),
        lambda target: Calls(eval, f"open({str(target)!r}, 'w')"),
        lambda target: Calls(exec, f"open({str(target)!r}, 'w')"),
        lambda target: Calls(subprocess.check_call, ["touch", str(target)]),
        lambda target: Calls(os.mkdir, str(target)),
        lambda target: Calls(np.save, str(target), [1]),
        lambda target: Calls(Path, str(target)),
    ],
)
def test_a_bomb_in_a_cifar_batch_is_refused_and_does_nothing(
    tmp_path: Path, bomb: Callable[[Path], object], protocol: int
) -> None:
    folder, target = tmp_path / "cifar10", tmp_path / "gone-off"
    folder.mkdir()
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a", b"b"]}, protocol=2))
    content = {b"data": bomb(target), b"labels": [0, 1]}
    (folder / "data_batch_1").write_bytes(pickle.dumps(content, protocol=protocol))
    for i in range(2, 6):
        (folder / f"data_batch_{i}").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"data_batch_1 is not a plain CIFAR batch and was refused \(it calls"
    ):
        load_images(folder)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        np.array([{"a": 1}], dtype=object),
        np.zeros(3, np.float64),
        np.zeros(3, [("a", np.uint8)]),
    ],
)
def test_arrays_of_anything_but_bytes_are_refused(content: np.ndarray) -> None:
    with pytest.raises(NotPlain):
        load_plain(pickle.dumps({b"data": content}, protocol=2))


def test_any_bytes_are_a_dict_or_refused(rng: np.random.Generator) -> None:
    whole = pickle.dumps({b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]}, protocol=2)
    for _ in range(300):
        broken = bytearray(whole[: rng.integers(0, len(whole) + 1)])
        for _ in range(rng.integers(0, 3) if broken else 0):
            broken[rng.integers(len(broken))] = rng.integers(256)
        with contextlib.suppress(NotPlain):
            assert isinstance(load_plain(bytes(broken)), dict)
