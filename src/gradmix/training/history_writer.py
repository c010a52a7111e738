"""Writes rows of the history to history.jsonl, and to wherever else the run is logged."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from .log_sinks import Sink, open_sinks
from .run_folder import RunFolder


class HistoryWriter:
    """Logs rows while entered; every sink is closed on leaving, whatever happened inside."""

    def __init__(self, run: RunFolder | None, step: int = 0) -> None:
        """Write rows after ``step``; what an interrupted run wrote after it is superseded."""
        self.run = run
        self._step = step
        self._sinks: list[Sink] = []

    def __enter__(self) -> HistoryWriter:
        if self.run:
            self._sinks = list(open_sinks(self.run, self._step))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sink in self._sinks:
            sink.close(failed=kind is not None)

    def log(self, step: int, row: Mapping[str, float | str]) -> None:
        """Append a row."""
        if self.run:
            self.run.append_history({"step": step, **row})
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}  # not the stage
        for sink in self._sinks:
            sink.log(step, numbers)
