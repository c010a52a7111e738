from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.files import write_atomically, write_text


def test_writes_and_replaces(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "one")
    write_text(tmp_path / "a.txt", "zwei ü")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "zwei ü"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_names_that_are_not_utf8_become_escapes(tmp_path: Path) -> None:
    name = os.fsdecode(b"gr\xfcn.png")
    write_text(tmp_path / "a.json", json.dumps({"ü": name}, ensure_ascii=False))
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{"ü": "gr\\udcfcn.png"}'
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"ü": name}


def test_a_failure_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def fill_the_disk(part: Path) -> None:
        part.write_text("half of the n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"could not write .*a\.txt: No space left on device"):
        write_atomically(target, fill_the_disk)
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_other_errors_pass_through_and_leave_no_part_either(
    error: type[BaseException], tmp_path: Path
) -> None:
    def fail(part: Path) -> None:
        part.write_text("half")
        raise error

    with pytest.raises(error):
        write_atomically(tmp_path / "a.txt", fail)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_the_users_business(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"could not write .*a\.txt: No such file or directory"):
        write_text(tmp_path / "nowhere" / "a.txt", "x")


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def look_while_writing(part: Path) -> None:
        part.write_text("new")
        assert target.read_text() == "old"
        assert part.parent == target.parent  # else the move would not be one step

    write_atomically(target, look_while_writing)
    assert target.read_text() == "new"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_are_those_of_any_other_new_file(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "ours", "x")
        (tmp_path / "plain").write_text("x")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode for name in ("ours", "plain")}
    assert modes["ours"] == modes["plain"]


def test_permissions_of_a_file_that_is_replaced_stay(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    (tmp_path / "a.txt").chmod(0o640)
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_the_new_name_is_flushed_to_the_disk_after_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure could take the name back that a later file relies on."""
    done: list[str] = []
    replace, flush = os.replace, os.fsync

    def note_flush(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "content")
        flush(handle)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("name"), replace(a, b)))
    write_text(tmp_path / "a.txt", "x")
    assert done == ["content", "name", "folder"]

    def cannot(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "this file system cannot")

    monkeypatch.setattr(os, "fsync", cannot)
    write_text(tmp_path / "a.txt", "y")
    assert (tmp_path / "a.txt").read_text() == "y"
