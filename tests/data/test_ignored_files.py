"""Files that are no images are counted by ending; HEIC pictures are read where pillow-heif is installed."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.batch.stream import Inputs
from gradmix.data import Unreadable, check_data, decode, load_image_files, load_images, open_image
from gradmix.data.file_names import can_read_heif, describe_ignored, is_image_name
from gradmix.errors import UserError
from gradmix.serve.limits import Limits
from gradmix.serve.uploads import Upload, decode_uploads
from tests.data.decoding.damage import damaged

needs_heif = pytest.mark.skipif(not can_read_heif(), reason="pillow-heif is not installed")


def picture(height: int = 48, width: int = 64) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([4 * y, 3 * x, 0 * x], -1).astype(np.uint8))


def heic(image: Image.Image, **options: object) -> bytes:
    import pillow_heif

    to = io.BytesIO()
    pillow_heif.from_pillow(image).save(to, quality=95, **options)
    return to.getvalue()


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind / "more").mkdir(parents=True)
        for i in range(3):
            picture(8 + i, 9).save(tmp_path / "photos" / kind / f"{i}.png")
        (tmp_path / "photos" / kind / "more" / "film.mov").touch()
        (tmp_path / "photos" / kind / ".hidden.txt").touch()
    (tmp_path / "photos" / "cat" / "Thumbs.db").touch()
    (tmp_path / "photos" / "list.csv.bak").touch()
    picture().save(tmp_path / "photos" / "cat" / "in.png")
    return tmp_path / "photos"


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("file_names", "decoding"):
        monkeypatch.setattr(f"gradmix.data.{module}.can_read_heif", lambda: False)


def test_a_folder_says_what_it_did_not_read(photos: Path) -> None:
    with pytest.warns(UserWarning, match=r"photos: \.mov: 2, \.bak: 1 files ignored$"):
        images = load_images(photos)
    assert len(images) == 7
    with pytest.warns(UserWarning, match=r"cat: \.mov: 1 file ignored$"):
        load_image_files([photos / "cat"], size=8, channels=3)
    with pytest.warns(UserWarning, match=r"\.mov: 2, \.bak: 1 files ignored"):
        assert Inputs.from_paths([photos]).count == 7
    findings = {finding.kind: finding for finding in check_data(photos).findings}
    assert findings["ignored"].what == ".mov: 2, .bak: 1 files ignored"
    assert not findings["ignored"].broken


def test_nothing_is_said_where_nothing_was_ignored(photos: Path) -> None:
    for file in (*photos.rglob("*.mov"), *photos.rglob("*.bak")):
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_images(photos)
        Inputs.from_paths([photos])


@pytest.mark.usefixtures("without_heif")
def test_heic_without_its_package_names_the_package(photos: Path) -> None:
    for i in range(3):
        (photos / "cat" / f"{i}.png").rename(photos / "cat" / f"{i}.HEIC")
    said = r"\.HEIC: 3, .* files ignored \(to read HEIC: pip install pillow-heif\)"
    with pytest.warns(UserWarning, match=said):
        assert len(load_images(photos)) == 4
    (photos / "cat" / "in.png").unlink()
    with pytest.raises(UserError, match=r"cat has no images \(\.HEIC: 3, .*pip install pillow-heif\)\); add"):
        load_images(photos)
    with pytest.raises(UserError, match=r"no images in .*cat: \.HEIC: 3.*pip install pillow-heif"):
        load_image_files([photos / "cat"], size=8, channels=3)
    with pytest.raises(UserError, match=r"no images in .*cat: \.HEIC: 3.*pip install pillow-heif"):
        Inputs.from_paths([photos / "cat"])
    with pytest.raises(Unreadable, match="is a HEIC picture; to read those: pip install pillow-heif"):
        open_image(bytes(4) + b"ftypheic" + bytes(40))


@needs_heif
def test_heic_is_read_like_other_pictures(photos: Path) -> None:
    whole = picture()
    for name in ("a.heic", "b.HEIF", "named-wrongly.jpg"):
        (photos / "dog" / name).write_bytes(heic(whole))
    with pytest.warns(UserWarning, match=r"photos: \.mov: 2, \.bak: 1 files ignored$"):
        images = load_images(photos, size=32)
    assert len(images) == 10
    content = heic(whole)
    for source in (content, photos / "dog" / "a.heic"):
        found = np.asarray(decode(source)).astype(int)
        assert found.shape == (48, 64, 3)
        assert abs(found - np.asarray(whole)).mean() < 6  # it is compressed
    assert "HEIF" not in Image.OPEN  # nothing changes for others who use Pillow


@needs_heif
def test_heic_is_turned_upright_and_laid_on_white() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = heic(picture(), exif=exif.tobytes())
    assert decode(turned).size == (48, 64)
    assert open_image(turned).size == (48, 64)
    clear = Image.new("RGBA", (64, 64), (255, 0, 0, 0))
    assert np.asarray(decode(heic(clear))).min() > 250


@needs_heif
def test_heic_that_is_too_large_or_lies_about_it() -> None:
    for whole in (picture(64, 96), picture(50, 70)):  # the second is cut out of a larger one
        content = bytearray(heic(whole))
        at = content.index(b"ispe") + 8
        content[at : at + 8] = struct.pack(">II", 20_000, 20_000)
        with pytest.raises(Unreadable, match="is too large: 400,000,000 pixels"):
            open_image(bytes(content))
        content[at : at + 8] = struct.pack(">II", 16, 16)
        with pytest.raises(Unreadable, match=r"is damaged|cannot be opened"):
            decode(bytes(content))


@needs_heif
def test_damaged_heic_is_refused_and_nothing_else_happens() -> None:
    whole = heic(picture())
    refused = 0
    for content in damaged(whole, 100, np.random.default_rng(0)):
        try:
            decode(content, 16)
        except Unreadable:
            refused += 1
    assert refused > 20


@needs_heif
def test_the_server_does_not_decode_heic() -> None:
    """Its library decodes before it compares the size with the header's, on which the budgets rest."""
    from gradmix.data import ImageFormat
    from gradmix.serve.http import HTTPError

    with pytest.raises(HTTPError, match=r"a\.heic is HEIC; send one of AVIF"):
        decode_uploads([Upload("a.heic", heic(picture()))], ImageFormat(16, 3), Limits())


def test_the_package_is_imported_for_heic_only(photos: Path) -> None:
    probe = (
        "import sys, warnings; warnings.simplefilter('ignore'); from gradmix.data import load_images\n"
        f"load_images({str(photos)!r})\nprint('pillow_heif' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_names() -> None:
    assert is_image_name("a.JPG")
    assert is_image_name("a.heic") == can_read_heif()
    assert not is_image_name(".a.heic")
    assert describe_ignored({".txt": 1}) == ".txt: 1 file ignored"
