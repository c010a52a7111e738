"""A very large image is decoded in little more memory than it fills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.data import decoding
from gradmix.data.decoding import decode

_SIDE = 5600  # 31 million pixels: a third of what is decoded at most
_BYTES_PER_PIXEL = 12  # the image as stored, the plain image, and bands of rows on the way; it was up to 26
_DECODE = """
import sys
from pathlib import Path
from gradmix.data.decoding import decode

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024

before = peak()
decode(Path(sys.argv[1]), 32)
print(peak() - before)
"""
_MODES = {
    "I;16": np.zeros((_SIDE, _SIDE), dtype=np.uint16),
    "F": np.zeros((_SIDE, _SIDE), dtype=np.float32),
    "RGBA": np.zeros((_SIDE, _SIDE, 4), dtype=np.uint8),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("mode", _MODES)
def test_memory_of_a_large_image(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "large.tiff"
    Image.fromarray(_MODES[mode]).save(file, compression="packbits")
    run = subprocess.run([sys.executable, "-c", _DECODE, file], capture_output=True, text=True, check=True)
    assert int(run.stdout) / _SIDE**2 < _BYTES_PER_PIXEL


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "I;16", "I;16B", "I", "F"])
def test_bands_change_no_pixel(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (37, 23, 4), dtype=np.uint8)
    deep = {
        "I;16": random.integers(0, 1 << 16, (37, 23)).astype(np.uint16),
        "I": random.integers(0, 1 << 16, (37, 23)).astype(np.int32),
        "F": random.random((37, 23), dtype=np.float32),
    }
    deep["I;16B"] = deep["I;16"].astype(">u2")
    image = Image.fromarray(deep[mode]) if mode in deep else Image.fromarray(pixels).convert(mode)
    assert image.mode == mode
    if mode == "P":
        image.info["transparency"] = 3
    whole = decoding._plain(image.copy())
    monkeypatch.setattr(decoding, "_PIXELS_PER_BAND", 100)
    banded = decoding._plain(image.copy())
    assert (whole.mode, whole.size) == (banded.mode, banded.size)
    assert whole.tobytes() == banded.tobytes()
    assert np.asarray(whole).std() > 0


def test_the_scale_of_floating_point_is_that_of_the_whole_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_PIXELS_PER_BAND", 4)
    pixels = np.array([[0.5] * 4, [200.0] * 4], dtype=np.float32)  # 0.5 is dark here, and no middle gray
    Image.fromarray(pixels).save(tmp_path / "a.tiff")
    assert np.asarray(decode(tmp_path / "a.tiff")).tolist() == [[0] * 4, [200] * 4]
