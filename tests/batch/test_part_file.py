from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from gradmix.batch import part_file
from gradmix.batch.part_file import PartFile
from gradmix.errors import UserError

ABOUT = {"model": "m", "list of images": "l"}


@pytest.fixture(autouse=True)
def synced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "_SECONDS_BETWEEN_SYNCS", -1.0)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def begin(out: Path, rows: int) -> None:
    with PartFile(out, ABOUT) as part:
        for i in range(rows):
            part.append(f"row {i}\n", {"rows": 1})


def test_stopped_and_finished(out: Path) -> None:
    begin(out, 3)
    assert not out.exists()
    with open(f"{out}.part", "a") as torn:
        torn.write("row 3\nro")  # written, but never said to count
    with PartFile(out, ABOUT) as part:
        assert part.rows == 3
        part.append("row 3\n", {"rows": 1, "odd": 1})
        part.finish()
    assert part.counts == {"rows": 4, "odd": 1}
    assert out.read_text() == "row 0\nrow 1\nrow 2\nrow 3\n"
    assert [file.name for file in out.parent.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("what", ABOUT)
def test_of_something_else(out: Path, what: str) -> None:
    begin(out, 3)
    with pytest.raises(UserError, match=rf"a.csv.part was begun with another {what}; --force starts over"):
        PartFile(out, ABOUT | {what: "other"}).__enter__()
    with PartFile(out, ABOUT) as part:  # nothing was lost by asking
        assert part.rows == 3
    with PartFile(out, ABOUT | {what: "other"}, force=True) as part:
        assert part.rows == 0
        part.append("new\n", {"rows": 1})
        part.finish()
    assert out.read_text() == "new\n"


def test_what_is_there_is_not_replaced_unasked(out: Path) -> None:
    out.write_text("hours of work")
    with pytest.raises(UserError, match=r"a.csv exists already; --force replaces it"):
        PartFile(out, ABOUT).__enter__()
    assert [file.name for file in out.parent.iterdir()] == ["a.csv"]
    with PartFile(out, ABOUT, force=True) as part:
        part.append("new\n", {"rows": 1})
        assert out.read_text() == "hours of work"  # until the other is whole
        part.finish()
    assert out.read_text() == "new\n"


def test_started_over_stopped_and_resumed(out: Path) -> None:
    """What counts is counted from the new beginning, not from where the old bytes ended."""
    begin(out, 9)
    with PartFile(out, ABOUT, force=True) as part:
        part.append("a\n", {"rows": 1})
        part.append("b\n", {"rows": 1})
    with PartFile(out, ABOUT) as part:
        assert part.rows == 2
        part.append("c\n", {"rows": 1})
        part.finish()
    assert out.read_text() == "a\nb\nc\n"


def test_killed_after_the_header_it_begins_anew(out: Path) -> None:
    """A busy machine may take a second to get there, and then the header is on disk before any row."""
    kept = [Path(f"{out}.part"), Path(f"{out}.part.json")]
    with PartFile(out, ABOUT) as part:
        part.append("header\n", {"rows": 0})
        killed = [file.read_text() for file in kept]
    assert killed[0] == "header\n"
    for file, text in zip(kept, killed, strict=True):
        file.write_text(text)
    with PartFile(out, ABOUT) as part:
        assert part.rows == 0
        part.append("header\n", {"rows": 0})
        part.append("row 0\n", {"rows": 1})
        part.finish()
    assert out.read_text() == "header\nrow 0\n"


def test_damage_is_named(out: Path) -> None:
    begin(out, 3)
    part, journal = Path(f"{out}.part"), Path(f"{out}.part.json")
    part.write_text("row 0\n")
    with pytest.raises(UserError, match="is shorter than it was; --force"):
        PartFile(out, ABOUT).__enter__()
    for damaged in ("", "[]", "{}", json.dumps({"bytes": 1, "counts": 3, "about": {}})):
        journal.write_text(damaged)
        with pytest.raises(UserError, match=r"part.json is damaged; --force"):
            PartFile(out, ABOUT).__enter__()
    journal.unlink()
    with PartFile(out, ABOUT) as again:  # stopped before anything counted
        assert again.rows == 0
    with pytest.raises(UserError, match="there is no folder"):
        PartFile(out.parent / "nowhere" / "a.csv", ABOUT).__enter__()


def test_one_writer_at_a_time(out: Path) -> None:
    with PartFile(out, ABOUT) as first:
        first.append("row 0\n", {"rows": 1})
        with pytest.raises(UserError, match=r"another process is writing .*a.csv.part"):
            PartFile(out, ABOUT, force=True).__enter__()
    with PartFile(out, ABOUT) as second:
        assert second.rows == 1


def test_an_interrupt_between_row_and_count_leaves_the_row_uncounted(out: Path) -> None:
    def interrupted() -> None:
        with PartFile(out, ABOUT) as part:
            part.append("row 0\n", {"rows": 1})
            part._file.write(b"row 1\n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with PartFile(out, ABOUT) as part:
        assert part.rows == 1
        assert Path(f"{out}.part").read_text() == "row 0\n"


def test_a_full_disk_is_named_and_what_counted_is_kept(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(out, 3)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def go_on() -> None:
        with PartFile(out, ABOUT) as part:
            part.append("row 3\n", {"rows": 1})

    with monkeypatch.context() as patch:
        patch.setattr(part_file.os, "fsync", full)
        with pytest.raises(
            UserError, match=r"could not write .*a.csv.part: No space left on device; the same"
        ):
            go_on()
    with PartFile(out, ABOUT) as part:
        assert part.rows == 3


def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "a.csv.part").mkdir()
    with pytest.raises(UserError, match=r"could not write .*a.csv.part: Is a directory"):
        PartFile(tmp_path / "a.csv", ABOUT).__enter__()


def test_nothing_is_left_where_nothing_was_done(out: Path) -> None:
    def fail_at_once() -> None:
        with PartFile(out, ABOUT):
            raise ValueError

    with pytest.raises(ValueError):
        fail_at_once()
    assert not list(out.parent.iterdir())
