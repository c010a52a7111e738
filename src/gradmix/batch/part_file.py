"""A file that is written over hours, survives a kill, and gets its name only when it is complete.

Rows go to ``answers.csv.part``. The journal ``answers.csv.part.json`` records how many of its bytes are
valid, and for which model and inputs they were written; it is replaced only after these bytes are on disk.
So at any moment the valid part is whole rows: resuming cuts off the rest, including a torn line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import UserError
from ..files import sync_folder

try:
    import fcntl
except ImportError:  # Windows: there, nothing stops two processes from writing the same file
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_SYNCS = 1.0


class PartFile:
    """A partly written file. ``about`` identifies its content; a part of other content is refused.

    ``counts`` are totals over the content, kept in the journal; ``rows`` is one of them.
    """

    def __init__(self, out: Path, about: Mapping[str, str], force: bool = False) -> None:
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self.journal = out.with_name(out.name + ".part.json")
        self.about = dict(about)
        self.counts: dict[str, int] = {}
        self._committed = (
            0,
            self.counts,
        )  # bytes and their counts: one assignment, so they always agree
        self._failed = False
        self._force = force
        self._synced = time.monotonic()

    def __enter__(self) -> Self:
        if not self.out.parent.is_dir():
            raise UserError(f"--out {self.out}: there is no folder {self.out.parent}")
        if self.out.is_dir() or (self.out.exists() and not self._force):
            way_out = "choose another name" if self.out.is_dir() else "--force replaces it"
            raise UserError(f"{self.out} exists already; {way_out}")
        try:
            self._file = open(self.part, "ab")
        except OSError as error:
            raise UserError(f"could not write {self.part}: {error.strerror}") from error
        try:
            self._lock()
            self._resume()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file.closed:
            return
        try:
            if self.rows and not self._failed:
                self.sync()
        finally:
            with suppress(OSError):  # the disk was full, which has been reported
                self._file.close()
        if not self.rows:  # nothing to resume
            for left_over in (self.part, self.journal):
                left_over.unlink(missing_ok=True)

    @property
    def rows(self) -> int:
        return self.counts.get("rows", 0)

    def append(self, text: str, counts: Mapping[str, int]) -> None:
        """Append whole rows, and add to the counts."""
        with self._translate_errors():
            self._file.write(text.encode())
        names = dict.fromkeys((*self.counts, *counts))
        self.counts = {name: self.counts.get(name, 0) + counts.get(name, 0) for name in names}
        self._committed = self._file.tell(), self.counts
        if time.monotonic() - self._synced > _SECONDS_BETWEEN_SYNCS:
            self.sync()

    def sync(self) -> None:
        """Write to disk what was appended, so that it survives a kill or a power cut."""
        n_bytes, counts = self._committed
        state = {"about": self.about, "counts": counts, "bytes": n_bytes}
        new = self.journal.with_name(self.journal.name + ".new")  # a fixed name: kills leave one file at most
        with self._translate_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            new.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
            os.replace(new, self.journal)
        self._synced = time.monotonic()

    def finish(self, convert: Callable[[Path, Path], None] | None = None) -> None:
        """Rename the part to ``out``, after ``convert(part, new)`` if the format is not lines."""
        self.sync()
        self._file.close()
        complete = self.part
        if convert is not None:
            complete = self.out.with_name(self.out.name + ".part.new")
            convert(self.part, complete)
        os.replace(complete, self.out)
        sync_folder(self.out.parent)
        for left_over in (self.part, self.journal):
            left_over.unlink(missing_ok=True)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise a UserError that names the file; what was written before stays valid."""
        try:
            yield
        except OSError as error:
            self._failed = True
            raise UserError(
                f"could not write {self.part}: {error.strerror or error}; the same command goes on from there"
            ) from error

    def _lock(self) -> None:
        """Raise a UserError if another process writes the same part."""
        busy = UserError(f"another process is writing {self.part}; wait for it, or stop it")
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise busy from None
            # The other process may have finished and renamed the file after it was opened here.
            if not self.part.exists() or not os.path.samestat(
                os.fstat(self._file.fileno()), self.part.stat()
            ):
                raise busy

    def _resume(self) -> None:
        """Cut the part back to its valid bytes, and restore the counts."""
        state = None if self._force else self._read_journal()
        # Without a row there is nothing to go on with, and who writes a header first will write it again.
        if state is None or not state["counts"]["rows"]:
            self._file.truncate(0)
            self._file.seek(0)  # else tell() would count from the old end
            return
        for what, value in self.about.items():
            if state["about"].get(what) != value:
                raise UserError(f"{self.part} was begun with another {what}; --force starts over")
        if os.fstat(self._file.fileno()).st_size < state["bytes"]:
            raise UserError(f"{self.part} is shorter than it was; --force starts over")
        self._file.truncate(state["bytes"])
        self._file.seek(0, os.SEEK_END)
        self.counts = {name: int(number) for name, number in state["counts"].items()}
        self._committed = state["bytes"], self.counts

    def _read_journal(self) -> dict[str, Any] | None:
        try:
            state = json.loads(self.journal.read_text(encoding="utf-8"))
            valid = isinstance(state["bytes"], int) and {"rows"} <= state["counts"].keys()
            return state if valid and isinstance(state["about"], dict) else None
        except FileNotFoundError:
            return None  # stopped before the first sync
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{self.journal} is damaged; --force starts over") from None
