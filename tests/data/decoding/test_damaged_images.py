"""Every damaged image is decoded or refused by name: no other exception, no hang, no huge allocation."""

from __future__ import annotations

import resource
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gradmix
from gradmix.data import load_image_files
from gradmix.data.corruptions.frost_pictures import _read
from gradmix.data.decoding import Unreadable, decode, open_image, refuse_bombs, refuse_damage, upright_size
from gradmix.errors import UserError
from tests.data.decoding.damage import damaged, damaged_avif, whole_images

SECONDS_PER_IMAGE = 20.0  # of work, however busy the machine is; a small image takes some milliseconds
MOST_MEGABYTES = 1500  # more than the largest image that is decoded needs, for all of its copies


def fuzz(count: int, seed: int) -> None:
    """Decode ``count`` damaged copies of each kind of image; what they raise besides Unreadable fails."""
    escaped: Counter[str] = Counter()
    decoded, before = 0, _peak_megabytes()
    for kind, content in whole_images().items():
        for broken in damaged(content, count, np.random.default_rng(seed)):
            started = time.process_time()
            with refuse_bombs():
                try:
                    with open_image(broken) as image:
                        upright_size(image)
                    assert decode(broken, 8).size == (8, 8)
                    decoded += 1
                except Unreadable:
                    pass
                except Exception as error:
                    escaped[f"{kind}: {type(error).__name__}: {error}"] += 1
            if time.process_time() - started > SECONDS_PER_IMAGE:
                escaped[f"{kind}: took long"] += 1
    assert not escaped, "\n".join(f"{times} x {what}" for what, times in escaped.most_common(40))
    assert decoded > 1000  # damage that leaves an image an image must be among it
    assert _peak_megabytes() - before < MOST_MEGABYTES


def test_some_damage_to_every_format() -> None:
    fuzz(40, seed=0)


@pytest.mark.slow
def test_much_damage_to_every_format() -> None:
    fuzz(1000, seed=1)


def test_formats_are_all_among_them() -> None:
    kinds = {name.split(",")[0].split()[0] for name in whole_images()}
    assert {"JPEG", "PNG", "WEBP", "AVIF", "GIF", "TIFF", "BMP", "PPM", "ICO", "TGA", "PCX", "DDS"} <= kinds


def test_a_damaged_avif_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.avif"
    file.write_bytes(damaged_avif())
    with pytest.raises(UserError, match=r"broken\.avif (is damaged|cannot be opened) \(.+\); --skip-bad"):
        load_image_files([file], size=8, channels=3)
    with pytest.raises(UserError, match=r"frost picture .*broken\.avif (is damaged|cannot be opened)"):
        _read(file)
    good = tmp_path / "good.png"
    Image.new("RGB", (8, 8)).save(good)
    images, bad = load_image_files([good, file], size=8, channels=3, skip_bad=True)
    assert (len(images), [image.name for image in bad]) == (1, [str(file)])


@pytest.mark.parametrize(
    "kind", [RuntimeError, ZeroDivisionError, RecursionError, UserWarning, AssertionError]
)
def test_any_error_of_a_plugin_is_damage(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise kind("first line\nsecond line")

    content = whole_images()["PNG, RGB"]
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail)
    with pytest.raises(Unreadable, match=r"^is damaged \(first line\)$"):
        decode(content)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile._open", fail)
    with pytest.raises(Unreadable, match=r"^cannot be opened \(first line\)$"):
        open_image(content)


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, SystemExit])
def test_what_is_not_about_the_image_passes(kind: type[BaseException]) -> None:
    with pytest.raises(kind), refuse_damage("is damaged"):
        raise kind


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -3e38, 3e38])
def test_odd_numbers_in_floating_point_images_raise_no_warning(value: float, tmp_path: Path) -> None:
    pixels = np.full((4, 4), value, dtype=np.float32)
    Image.fromarray(pixels).save(tmp_path / "a.tiff")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(tmp_path / "a.tiff").mode == "L"


def test_images_are_opened_in_one_place() -> None:
    """Besides: a JPEG that was encoded a line before, and the exported script that runs without gradmix."""
    package = Path(gradmix.__file__).parent
    opening = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "Image.open(" in file.read_text(encoding="utf-8")
    }
    assert opening == {"data/decoding.py", "data/corruptions/digital.py", "export/onnx_predict.py"}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
