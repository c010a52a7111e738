"""Ctrl-C finishes the step and saves, instead of tearing the run apart."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT or SIGTERM has come; a second one acts at once."""
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    with _handle(on_signal):
        yield lambda: asked


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Let either signal raise KeyboardInterrupt: the block has no step to finish, and nothing to save."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handle(on_signal):
        yield


@contextmanager
def _handle(on_signal: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    for s in before:
        signal.signal(s, on_signal)
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
