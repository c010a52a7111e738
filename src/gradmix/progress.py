"""What a terminal shows: progress on stderr, for whatever takes longer than two seconds; tables on stdout.

A library must be silent unless asked, so bars appear only after ``show()``, which the command
line calls. Results go to stdout and are never mixed with this.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_SECONDS_BEFORE_SHOWING = 2.0
_SECONDS_BETWEEN_LINES = 30.0  # where stderr is a file: a bar there would be thousands of lines
_shown = False
_drawn = False  # a bar is shown now: a second one inside it would flicker

_FULL_WIDTH = 10_000  # characters

Advance = Callable[..., None]


def show(on: bool = True) -> None:
    """Let progress bars appear (on stderr) from now on."""
    global _shown
    _shown = on


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Yield ``advance(n=1, note="")``; draw a bar once the work has lasted two seconds.

    Inside another bar, no second one is drawn.

    >>> with progress("reading images", total=3) as advance:
    ...     for _ in range(3):
    ...         advance()
    """
    global _drawn
    if not _shown or _drawn:
        with no_progress() as nothing:
            yield nothing
        return
    _drawn = True
    try:
        if sys.stderr.isatty():
            with _bar(what, total) as advance:
                yield advance
        else:
            yield _lines(what, total)
    finally:
        _drawn = False


@contextmanager
def no_progress(what: str = "", total: int = 0) -> Iterator[Advance]:
    """Yield an ``advance`` that does nothing; replaces :func:`progress` where no bar is wanted."""
    yield lambda n=1, note="": None


@contextmanager
def _bar(what: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total, note="")
    started = time.monotonic()
    running = False

    def advance(n: int = 1, note: str = "") -> None:
        nonlocal running
        bar.update(task, advance=n, note=note)
        if not running and time.monotonic() - started > _SECONDS_BEFORE_SHOWING:
            bar.start()
            running = True

    try:
        yield advance
    finally:
        if running:
            bar.stop()


def _lines(what: str, total: int) -> Advance:
    done = 0
    last = time.monotonic()

    def advance(n: int = 1, note: str = "") -> None:
        nonlocal done, last
        done += n
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{what}: {done}/{total} {note}".rstrip(), file=sys.stderr, flush=True)

    return advance


def print_table(table: Table) -> None:
    """Print to stdout, fitted to a terminal; in a file or a pipe nothing is cut off or wrapped."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _FULL_WIDTH).print(table)
