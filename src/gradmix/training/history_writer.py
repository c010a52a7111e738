"""Writes rows of the history to history.jsonl, and to TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from .run_folder import RunFolder


class HistoryWriter:
    """Logs rows while entered; TensorBoard's file is closed on leaving, whatever happened inside."""

    def __init__(self, run: RunFolder | None, step: int = 0) -> None:
        """Write rows after ``step``; what an interrupted run wrote after it is superseded."""
        self.run = run
        self._step = step
        self._writer: Any = None

    def __enter__(self) -> HistoryWriter:
        if self.run and importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.run.path / "tensorboard"), purge_step=self._step + 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.close()

    def log(self, step: int, row: Mapping[str, float | str]) -> None:
        """Append a row."""
        if self.run:
            self.run.append_history({"step": step, **row})
        if self._writer:
            for name, value in row.items():
                if not isinstance(value, str):  # the name of a stage
                    self._writer.add_scalar(name, value, step)
