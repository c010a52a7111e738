"""Archives as people have downloaded them, and archives as nobody should."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradmix import progress
from gradmix.cli import main
from gradmix.data import cache_root, list_splits, load_images
from gradmix.data.inspection import describe_data, list_data
from gradmix.data.loading import archives
from gradmix.errors import UserError

KINDS = ("zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz")
Pack = Callable[..., Path]


def png(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


GOOD = {
    f"{kind}/{i}.png": png(3 * number + i) for number, kind in enumerate(("cat", "dog")) for i in range(3)
}


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """pack(files, kind, **more tar members) -> the archive photos.<kind>."""

    def write(files: dict[str, bytes], kind: str = "zip", *members: tarfile.TarInfo) -> Path:
        path = tmp_path / f"photos.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
            return path
        compression = {"tar": "", "tgz": "gz"}.get(kind, kind.removeprefix("tar."))
        with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            for member in members:
                archive.addfile(member)
        return path

    return write


def unpacked_folders() -> list[Path]:
    folder = cache_root() / "unpacked"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def whole() -> list[Path]:
    return [path for path in unpacked_folders() if not path.name.startswith(".")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", ["", "photos/", "./", "deep/er/"])
def test_an_archive_is_read_as_the_folder_in_it(kind: str, inside: str, pack: Pack, tmp_path: Path) -> None:
    for name, content in GOOD.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    archive = pack({inside + name: content for name, content in GOOD.items()}, kind)
    read, expected = load_images(archive), load_images(tmp_path / "folder")
    assert read.content_hash() == expected.content_hash()
    assert read.sources == expected.sources
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("folder", "cache")] == [
        archive.name
    ]


def test_it_is_unpacked_once_and_again_when_it_has_changed(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(GOOD)
    first = load_images(archive).content_hash()
    with monkeypatch.context() as patch:
        patch.setattr(archives, "_unpack", None)  # would fail
        assert load_images(archive).content_hash() == first
    pack({**GOOD, "dog/3.png": png(99)})
    assert len(load_images(archive)) == 7
    assert len(whole()) == 2


def test_an_unpacking_that_was_killed_is_done_again(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Nothing after it is executed."""

    write, written = archives._write, []

    def die_at_the_third(archive: Path, member: object, target: Path, most: int) -> int:
        if len(written) == 2:
            target.write_bytes(b"half of it")
            raise Killed
        written.append(target)
        return write(archive, member, target, most)  # type: ignore[arg-type]

    archive = pack(GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(archives, "_write", die_at_the_third)
        with pytest.raises(Killed):
            load_images(archive)
    assert whole() == []
    (unpacked_folders()[-1] / "left-over").mkdir()
    assert load_images(archive).class_names == ("cat", "dog")


def test_splits_and_what_archivers_leave_behind(pack: Pack) -> None:
    files = {f"photos/{split}/{name}": data for name, data in GOOD.items() for split in ("train", "test")}
    junk = {"__MACOSX/photos/._cat": b"x", "photos/.DS_Store": b"x", "photos/train/cat/._0.png": b"x"}
    archive = pack(files | junk)
    assert list_splits(archive) == ("train", "test")
    assert len(load_images(archive, split="test")) == 6
    assert describe_data(archive)[0].name == str(archive)
    assert not list(whole()[0].rglob("._*"))


def test_paths_as_old_windows_archivers_write_them(pack: Pack) -> None:
    read = load_images(pack({name.replace("/", "\\"): content for name, content in GOOD.items()}))
    assert read.class_names == ("cat", "dog")


def test_a_single_class_is_one(pack: Pack) -> None:
    archive = pack({name: content for name, content in GOOD.items() if name.startswith("cat")})
    assert load_images(archive).class_names == ("cat",)


def test_tiny_imagenet_as_downloaded_by_its_name(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    names = ("n01443537", "n01629819")
    files = {f"tiny-imagenet-200/train/{n}/images/{n}_{i}.JPEG": png(i) for i, n in enumerate(names * 2)} | {
        "tiny-imagenet-200/wnids.txt": "\n".join(names).encode(),
        "tiny-imagenet-200/val/images/val_0.JPEG": png(9),
        "tiny-imagenet-200/val/val_annotations.txt": f"val_0.JPEG\t{names[1]}\t0\t0\t9\t9".encode(),
    }
    pack(files).rename(tmp_path / "tiny-imagenet-200.zip")
    listed = next(listing for listing in list_data(tmp_path) if listing.name == "tiny-imagenet")
    assert (listed.path, listed.splits) == (tmp_path / "tiny-imagenet-200.zip", ())
    assert main(["data", "list", "--data-root", str(tmp_path)]) == 0
    progress.show(False)
    assert "unpacked on first use" in " ".join(capsys.readouterr().out.split())
    assert not unpacked_folders()  # a list does not unpack
    assert len(load_images("tiny-imagenet", data_root=tmp_path)) == 4
    read = load_images(tmp_path / "tiny-imagenet-200.zip", split="val")
    assert (len(read), read.images.shape[-1]) == (1, 64)


OUTSIDE = (
    *("../gone-off.png", "cat/../../gone-off.png", "/gone-off.png", "//server/share/gone-off.png"),
    *("..\\gone-off.png", "cat\\..\\..\\gone-off.png", "C:\\gone-off.png", "C:gone-off.png", "cat/.."),
)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_path_that_leaves_the_folder_is_refused(name: str, kind: str, pack: Pack, tmp_path: Path) -> None:
    archive = pack({**GOOD, name: png()}, kind)
    with pytest.raises(
        UserError, match="would be unpacked outside its folder; the archive is refused"
    ) as error:
        load_images(archive)
    assert str(error.value).startswith(f"{archive}: {name!r}")
    assert "\n" not in str(error.value)
    assert whole() == []
    assert not list(tmp_path.rglob("*gone-off*"))
    assert not Path("/gone-off.png").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        *((tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "link")),
        *((tarfile.CHRTYPE, "device"), (tarfile.BLKTYPE, "device"), (tarfile.FIFOTYPE, "device")),
    ],
)
@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "cat/0.png"])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, said: str, target: str, pack: Pack) -> None:
    member = tarfile.TarInfo("dog/9.png")
    member.type, member.linkname = kind, target
    with pytest.raises(UserError, match=rf"'dog/9\.png' is a {said}, not a file; the archive is refused"):
        load_images(pack(GOOD, "tar", member))
    assert whole() == []


def test_a_folder_that_is_a_link_is_never_written_through(pack: Pack, tmp_path: Path) -> None:
    """The old trick: first a link to elsewhere, then a file below it."""
    link = tarfile.TarInfo("cat")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    below = tarfile.TarInfo("cat/planted.png")
    with pytest.raises(UserError, match="'cat' is a link"):
        load_images(pack({}, "tar", link, below))
    assert not (tmp_path / "planted.png").exists()


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("dog/9.png")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(UserError, match=r"'dog/9\.png' is a link"):
        load_images(tmp_path / "photos.zip")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_decompression_bomb_is_refused(
    kind: str, pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MIN_ALLOWED_BYTES", 2**16)
    archive = tmp_path / f"photos.{kind}"
    zeros = bytes(50_000_000)
    if kind == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("cat/0.png", png())
            packed.writestr("cat/1.png", zeros)
    else:
        archive = pack({"cat/0.png": png(), "cat/1.png": zeros}, kind)
    assert archive.stat().st_size < 100_000
    with pytest.raises(
        UserError, match=r"with 'cat/1\.png' .* more than 100 times as large .* bomb is refused"
    ):
        load_images(archive)
    assert whole() == []


def test_a_zip_that_lies_about_a_size_is_refused(pack: Pack, tmp_path: Path) -> None:
    """The promise in the header is smaller than the content."""
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("cat/0.png", bytes(1_000_000))
    lying = archive.read_bytes().replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(lying)
    with pytest.raises(UserError, match="is damaged or not an archive"):
        load_images(archive)


def test_too_many_members(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    with pytest.raises(UserError, match="has more than 5 files; the archive is refused"):
        load_images(pack(GOOD))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["empty", "text", "half", "flipped"])
def test_damage_is_one_line_and_leaves_nothing(kind: str, damage: str, pack: Pack) -> None:
    archive = pack({**GOOD, "dog/z.png": os.urandom(40_000)}, kind)
    whole_bytes = bytearray(archive.read_bytes())
    if damage == "half":
        whole_bytes = whole_bytes[: len(whole_bytes) // 2]
    elif damage == "flipped":
        middle = len(whole_bytes) // 2
        whole_bytes[middle : middle + 64] = bytes(64)
    archive.write_bytes({"empty": b"", "text": b"hello " * 500}.get(damage, bytes(whole_bytes)))
    if kind == "tar" and damage == "flipped":  # a bare tar has no sums over its content: the image is broken
        with pytest.raises(UserError, match=r"dog/z\.png is not an image"):
            load_images(archive)
        return
    with pytest.raises(
        UserError, match=r"photos\..* is damaged or not an archive \(.*\); get it again"
    ) as error:
        load_images(archive)
    assert "\n" not in str(error.value)
    assert whole() == []


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_damaged_header_is_not_taken_for_the_end(kind: str, pack: Pack, tmp_path: Path) -> None:
    content = bytearray(pack(GOOD, "tar").read_bytes())
    at = content.index(b"dog/1.png")
    content[at + 100 : at + 160] = b"x" * 60
    archive = tmp_path / f"damaged.{kind}"
    archive.write_bytes(gzip.compress(content) if kind == "tar.gz" else content)
    with pytest.raises(UserError, match="a header in the middle is damaged"):
        load_images(archive)


def test_a_password_is_said_to_be_missing(pack: Pack) -> None:
    archive = pack(GOOD)
    content = archive.read_bytes()
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # set the bit "encrypted" everywhere
        parts = content.split(signature)
        content = signature.join(
            [parts[0], *(p[: flags - 4] + bytes([p[flags - 4] | 1]) + p[flags - 3 :] for p in parts[1:])]
        )
    archive.write_bytes(content)
    with pytest.raises(UserError, match="password"):
        load_images(archive)


def test_an_archive_without_images(pack: Pack) -> None:
    with pytest.raises(UserError, match=r"photos\.zip has no images that can be read here"):
        load_images(pack({"read.me": b"nothing"}))


def test_a_cifar_archive_with_a_path_that_leaves_or_a_giant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    member = tarfile.TarInfo("cifar-10-batches-py/../../data_batch_1")
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member)
    with pytest.raises(UserError, match="would be unpacked outside its folder"):
        load_images(path)
    monkeypatch.setattr("gradmix.data.readers.cifar_batches._LARGEST_FILE", 1000)
    member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    member.size = 2000
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, io.BytesIO(bytes(2000)))
    with pytest.raises(UserError, match="data_batch_1 has 2,000 bytes, too many for a batch"):
        load_images(path)


def test_labels_are_those_of_the_folders(pack: Pack) -> None:
    assert torch.equal(load_images(pack(GOOD)).labels, torch.tensor([0, 0, 0, 1, 1, 1]))
