"""``gradmix train`` on more pixels than it may hold: the real command, its real peak of resident memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.processes import peak_megabytes

pytestmark = pytest.mark.slow
SIDE = 128
FEW, MANY = 1200, 4000  # few: enough that every batch is full, also where features are extracted
PIXEL_MEGABYTES = MANY * 3 * SIDE**2 / 2**20  # 187.5
# Megabytes allowed beyond what a run on the few takes: a part of 32 MB that is decoded, one of 16 MB that is
# read, and what there is for every file (its name, its row). Measured: 1.
MORE_THAN_FEW = 50
FIELDS = {
    "image-size": SIDE,
    "encoder": "resnet10_16",
    "stem": "imagenet",
    "layers": "conv5_2",
    "feature-dim": 16,
    "max-steps": 3,
    "batch-size": 32,
    "k": 1,
    "holdout": 0.1,
}


def photos(folder: Path, number: int) -> Path:
    """Two classes of JPEGs; most are hard links to a few, for writing them is not what is tested."""
    rng = np.random.default_rng(0)
    for kind in "ab":
        (folder / kind).mkdir(parents=True)
        for i in range(number // 2):
            file = folder / kind / f"{i:05}.jpg"
            if i < 8:
                Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(file)
            else:
                os.link(folder / kind / f"{i % 8:05}.jpg", file)
    return folder


def train_and_measure(source: Path, out: Path, map_above: str) -> float:
    """Train, and return the most memory that was resident at any moment, mapped files included."""
    fields = [word for name, value in FIELDS.items() for word in (f"--{name}", str(value))]
    words = [sys.executable, "-m", "gradmix", "train", str(source), "--out", str(out), *fields]
    return peak_megabytes(words, {"GRADMIX_MAP_ABOVE": map_above, "OMP_NUM_THREADS": "1"})


def test_training_on_a_folder_larger_than_its_memory(tmp_path: Path) -> None:
    few, many = photos(tmp_path / "few", FEW), photos(tmp_path / "many", MANY)
    base = train_and_measure(few, tmp_path / "base", map_above="0")
    mapped = train_and_measure(many, tmp_path / "mapped", map_above="100M")
    pixel_files = list((tmp_path / "cache" / "pixels").glob("*/pixels.u8"))
    assert max(file.stat().st_size for file in pixel_files) == PIXEL_MEGABYTES * 2**20
    assert mapped < base + MORE_THAN_FEW, (base, mapped)
    # The same in memory takes much more, so the measure sees what it should, …
    in_memory = train_and_measure(many, tmp_path / "in_memory", map_above="100G")
    print(
        f"peak of {FEW} images {base:.0f} MB, of {MANY} mapped {mapped:.0f} MB, in memory {in_memory:.0f} MB"
    )
    assert in_memory > base + 0.8 * PIXEL_MEGABYTES, (base, in_memory)
    # … and ends in the same bytes.
    models = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("mapped", "in_memory")]
    assert models[0] == models[1]
