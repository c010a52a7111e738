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
# Where stderr is a file: a bar there would be thousands of lines.
_SECONDS_BEFORE_FIRST_LINE = 10.0
_SECONDS_BETWEEN_LINES = 30.0
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
    nowhere = sys.stderr is None  # as under pythonw, or in a service whose streams are closed
    if not _shown or _drawn or nowhere:
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
    done, at_start = 0, 0
    started: float | None = None
    due = time.monotonic() + _SECONDS_BEFORE_FIRST_LINE

    def advance(n: int = 1, note: str = "") -> None:
        nonlocal done, at_start, started, due
        done += n
        now = time.monotonic()
        if started is None:  # the first call may stand for what was done before, by a run that is resumed
            started, at_start = now, done
        if now > due:
            due = now + _SECONDS_BETWEEN_LINES
            left = ""
            if at_start < done < total:
                left = f"about {describe_seconds((now - started) * (total - done) / (done - at_start))} left"
            more = "; ".join(part for part in (left, note) if part)
            print(f"{what}: {done}/{total}" + (f", {more}" if more else ""), file=sys.stderr, flush=True)

    return advance


def describe_seconds(seconds: float) -> str:
    """Return a duration in words, as exact as an estimate is.

    >>> [describe_seconds(s) for s in (0.2, 47, 62, 754, 3600, 9000, 200_000)]
    ['1 s', '47 s', '1 min', '13 min', '1 h', '2 h 30 min', '55 h 33 min']
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def print_table(table: Table) -> None:
    """Print to stdout, fitted to a terminal; in a file or a pipe nothing is cut off or wrapped."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _FULL_WIDTH).print(table)
