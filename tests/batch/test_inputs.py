from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

from gradmix.batch import Input, Inputs
from gradmix.batch.stream import walk_images
from gradmix.data.readers.image_files import find_images
from gradmix.errors import UserError


def listed(inputs: Inputs, size: int = 3, first: int = 0) -> list[Input]:
    return [item for batch in inputs.batches(size, first) for item in batch]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Names that sort differently as text and as paths, things that are no images, and links."""
    names = ("a/2.png", "a.png", "a-b/1.jpg", "a/10.png", "B.JPG", "ü/ö.png", "line\nbreak.png", "z/y/x.webp")
    for name in (*names, ".hidden.png", ".cache/1.png", "__MACOSX/1.png", "notes.txt"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"x")
    (tmp_path / "tree" / "link.png").symlink_to("a.png")
    (tmp_path / "tree" / "circle").symlink_to(".", target_is_directory=True)
    (tmp_path / "tree" / "folder.png").mkdir()
    return tmp_path / "tree"


def test_the_lazy_walk_finds_what_the_whole_one_finds_in_that_order(tree: Path) -> None:
    assert [Path(path) for path in walk_images(str(tree))] == find_images(tree)
    inputs = Inputs.from_paths([tree, tree / "a.png"])
    assert [item.path for item in listed(inputs)] == [*find_images(tree), tree / "a.png"]
    assert [item.name for item in listed(inputs)] == [str(item.path) for item in listed(inputs)]
    assert inputs.count == len(find_images(tree)) + 1


def test_it_can_be_read_again_and_from_anywhere(tree: Path) -> None:
    inputs = Inputs.from_paths([tree])
    everything = listed(inputs)
    assert [len(batch) for batch in inputs.batches(4)] == [4, 4, 1]
    for first in range(len(everything) + 1):
        assert listed(inputs, 2, first) == everything[first:]


def test_the_digest_is_of_names_and_order(tree: Path) -> None:
    digest = Inputs.from_paths([tree]).digest
    assert Inputs.from_paths([tree]).digest == digest
    (tree / "new.png").write_bytes(b"x")
    assert Inputs.from_paths([tree]).digest != digest
    one, other = tree / "a.png", tree / "new.png"
    assert Inputs.from_paths([one, other]).digest != Inputs.from_paths([other, one]).digest


def test_lists() -> None:
    inputs = Inputs.from_lines([b"a.png\n", b"\n", b"b c.png\r\n", b"gr\xfcn.png"], "list.txt")
    assert [item.name for item in listed(inputs)] == ["a.png", "b c.png", r"gr\udcfcn.png"]
    assert str(listed(inputs)[2].path) == "gr\udcfcn.png"  # the very bytes, for opening it
    with pytest.raises(UserError, match=r"list\.txt names no images"):
        Inputs.from_lines([b"\n"], "list.txt")


def test_archives_are_searched_through(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "one.png")
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.write(tmp_path / "one.png", "deep/b.png")
        archive.write(tmp_path / "one.png", "a.png")
    (first, second) = listed(Inputs.from_paths([tmp_path / "some.zip"]))
    assert first.name == str(tmp_path / "some.zip" / "a.png")
    assert second.name == str(tmp_path / "some.zip" / "deep" / "b.png")
    assert second.path.read_bytes() == (tmp_path / "one.png").read_bytes()


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file or folder: .*nowhere"):
        Inputs.from_paths([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(UserError, match="no images in"):
        Inputs.from_paths([tmp_path])
