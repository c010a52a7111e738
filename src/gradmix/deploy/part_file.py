"""A file that is filled over hours: kept through a kill, and seen under its own name only when it is whole.

``answers.csv.part`` grows; ``answers.csv.part.json`` beside it says how much of it counts, and for what it
was begun. It is replaced after the bytes it speaks of have reached the disk. So whatever moment the work
ends at, what counts is whole rows: going on cuts the rest off, a torn line with it.
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

from ..data.cache_folder import sync_folder
from ..errors import UserError

try:
    import fcntl
except ImportError:  # Windows: there, that two processes do not fill the same file is up to the user
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_SYNCS = 1.0


class PartFile:
    """``about`` says what the file is of; a part begun for something else is refused, not mixed in.

    ``counts`` are numbers that go with the content, whatever the caller counts; ``rows`` is one of them.
    """

    def __init__(self, out: Path, about: Mapping[str, str], force: bool = False) -> None:
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self.journal = out.with_name(out.name + ".part.json")
        self.about = dict(about)
        self.counts: dict[str, int] = {}
        self._counted = 0, self.counts  # bytes, and what is in them: one assignment, which nothing can tear
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
            self._refuse_a_second_writer()
            self._go_on()
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
            with suppress(OSError):  # a full disk, of which was spoken already
                self._file.close()
        if not self.rows:  # nothing to go on with
            for left_over in (self.part, self.journal):
                left_over.unlink(missing_ok=True)

    @property
    def rows(self) -> int:
        return self.counts.get("rows", 0)

    def append(self, text: str, counts: Mapping[str, int]) -> None:
        """Add whole rows, and to the counts."""
        with self._complaining():
            self._file.write(text.encode())
        names = dict.fromkeys((*self.counts, *counts))
        self.counts = {name: self.counts.get(name, 0) + counts.get(name, 0) for name in names}
        self._counted = self._file.tell(), self.counts
        if time.monotonic() - self._synced > _SECONDS_BETWEEN_SYNCS:
            self.sync()

    def sync(self) -> None:
        """Make what was added outlive a kill or a power cut."""
        n_bytes, counts = self._counted
        state = {"about": self.about, "counts": counts, "bytes": n_bytes}
        new = self.journal.with_name(self.journal.name + ".new")  # one name, so that a kill leaves one file
        with self._complaining():
            self._file.flush()
            os.fsync(self._file.fileno())
            new.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
            os.replace(new, self.journal)
        self._synced = time.monotonic()

    def finish(self, convert: Callable[[Path, Path], None] | None = None) -> None:
        """Give the file its name; ``convert(part, new)`` first, if it is to be something else than lines."""
        self.sync()
        self._file.close()
        whole = self.part
        if convert is not None:
            whole = self.out.with_name(self.out.name + ".part.new")
            convert(self.part, whole)
        os.replace(whole, self.out)
        sync_folder(self.out.parent)
        for left_over in (self.part, self.journal):
            left_over.unlink(missing_ok=True)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        """Name the file that cannot be written; what counted before still does."""
        try:
            yield
        except OSError as error:
            self._failed = True
            raise UserError(
                f"could not write {self.part}: {error.strerror or error}; the same command goes on from there"
            ) from error

    def _refuse_a_second_writer(self) -> None:
        busy = UserError(f"another process is writing {self.part}; wait for it, or stop it")
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise busy from None
            # The other may have finished, and moved the file, between opening it here and the lock.
            if not self.part.exists() or not os.path.samestat(
                os.fstat(self._file.fileno()), self.part.stat()
            ):
                raise busy

    def _go_on(self) -> None:
        """Cut the part back to what counts."""
        state = None if self._force else self._read_journal()
        if state is None:
            self._file.truncate(0)
            self._file.seek(0)  # else what is added would be counted from the old end
            return
        for what, value in self.about.items():
            if state["about"].get(what) != value:
                raise UserError(f"{self.part} was begun with another {what}; --force starts over")
        if os.fstat(self._file.fileno()).st_size < state["bytes"]:
            raise UserError(f"{self.part} is shorter than it was; --force starts over")
        self._file.truncate(state["bytes"])
        self._file.seek(0, os.SEEK_END)
        self.counts = {name: int(number) for name, number in state["counts"].items()}
        self._counted = state["bytes"], self.counts

    def _read_journal(self) -> dict[str, Any] | None:
        try:
            state = json.loads(self.journal.read_text(encoding="utf-8"))
            whole = isinstance(state["bytes"], int) and {"rows"} <= state["counts"].keys()
            return state if whole and isinstance(state["about"], dict) else None
        except FileNotFoundError:
            return None  # stopped before anything counted
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{self.journal} is damaged; --force starts over") from None
