"""Files from elsewhere that are damaged, or made to hurt: one line, in little time and memory."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradmix.data import load_images
from gradmix.errors import UserError
from gradmix.recipe.files import parse_values
from gradmix.training import RunFolder
from tests.training.tiny import tiny_recipe


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 10, 10)).save(file, "PNG")
    return file.getvalue()


def write_parquet(file: Path, labels: list[Any], image: Any = None, metadata: Any = None) -> None:
    cell = {"bytes": png(), "path": "a.png"} if image is None else image
    table = pa.table({"image": [cell] * len(labels), "label": labels})
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": metadata})
    pq.write_table(table, file)


PARQUET: dict[str, Callable[[Path], None]] = {
    "huge label": lambda file: write_parquet(file, [0, 10**15]),
    "label in pieces": lambda file: write_parquet(file, [[1], [2]]),
    "image is a number": lambda file: write_parquet(file, [0, 1], 7),
    "image is another struct": lambda file: write_parquet(file, [0, 1], {"pixels": b"x"}),
    "metadata is no JSON": lambda file: write_parquet(file, [0, 1], metadata="{"),
    "metadata is deep": lambda file: write_parquet(file, [0, 1], metadata="[" * 100_000),
    "metadata is a list": lambda file: write_parquet(file, [0, 1], metadata="[1]"),
    "names are a number": lambda file: write_parquet(
        file, [0, 1], metadata=json.dumps({"info": {"features": {"label": {"names": 7}}}})
    ),
    "a billion empty rows": lambda file: pq.write_table(
        pa.table({"image": pa.nulls(20_000_000, pa.binary()), "label": pa.nulls(20_000_000, pa.int8())}), file
    ),
}


@pytest.mark.parametrize("case", PARQUET)
def test_hostile_parquet(case: str, tmp_path: Path) -> None:
    file = tmp_path / "set.parquet"
    PARQUET[case](file)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"set\.parquet") as refusal:
        load_images(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 50_000_000


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_damaged_at_any_place(kind: str, tmp_path: Path) -> None:
    """Four hundred mutations each: read, or refused in one line."""
    file = tmp_path / f"set.{kind}"
    if kind == "parquet":
        write_parquet(file, [0, 1, 0, 1])
    else:
        images = np.zeros((4, 8, 8, 3), np.uint8)
        np.savez_compressed(file, images=images, labels=np.arange(4) % 2, class_names=np.array(["a", "b"]))
    whole, rng, refused = file.read_bytes(), random.Random(0), 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.2:
            del damaged[rng.randrange(len(damaged)) :]
        file.write_bytes(damaged)
        try:
            load_images(file, skip_bad=True)
        except UserError as error:
            refused += "\n" not in str(error)
    assert refused > 100


def _bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _bomb(),
        "a: &a [*a]",
        "a: " + "[" * 50_000,
        "a: " + "{a: " * 5000 + "1" + "}" * 5000,
        "epochs: " + "9" * 5000,
        "epochs: " + "9" * 400,
        "epochs: 0x" + "f" * 100_000,
        "when: 2026-99-99",
        "a: !!float x",
        "a: !!int x",
        "? [a, b]\n: 1\n? {a: b}\n: 2",
        "a: " + "x" * 2_000_000,
    ],
)
def test_hostile_yaml(text: str) -> None:
    with pytest.raises(UserError, match=r"^mine\.yaml") as refusal:
        parse_values(text.encode(), "mine.yaml")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_hostile_history(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny_recipe(), {})
    for bad in (b'{"step": 3', b"[1]", b"7", b'{"loss": 1}', b'{"step": "x"}', b"\xff\xfe", b"[" * 100_000):
        run.history_file.write_bytes(b'{"step": 2, "loss": 1.0}\n' + bad + b"\n")
        assert run.history() == [{"step": 2, "loss": 1.0}]
        run.rewind_history(2)
        assert run.history() == [{"step": 2, "loss": 1.0}]
