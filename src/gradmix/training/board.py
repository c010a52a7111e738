"""Where rows of the history go: history.jsonl, and TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from .run_folder import RunFolder


class Board:
    """A context manager, for TensorBoard's file must be closed whatever happens."""

    def __init__(self, run: RunFolder | None, step: int = 0) -> None:
        """``step``: how far the run is; what an interrupted run wrote after it is superseded."""
        self.run = run
        self._step = step
        self._writer: Any = None

    def __enter__(self) -> Board:
        if self.run and importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.run.path / "tensorboard"), purge_step=self._step + 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.close()

    def log(self, step: int, row: Mapping[str, float]) -> None:
        if self.run:
            self.run.append_history({"step": step, **row})
        if self._writer:
            for name, value in row.items():
                self._writer.add_scalar(name, value, step)
