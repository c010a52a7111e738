from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gradmix import progress as module
from gradmix.progress import progress, show


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = module._shown
    yield
    show(before)


def count(total: int = 5, fail_after: int | None = None) -> None:
    with progress("counting", total) as advance:
        for i in range(total):
            advance(note=f"at {i}")
            if i == fail_after:
                raise RuntimeError


def test_silent_unless_asked(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(False)
    monkeypatch.setattr(module, "_SECONDS_BEFORE_FIRST_LINE", -1)
    count()
    assert capfd.readouterr() == ("", "")


def test_short_work_is_not_mentioned(capfd: pytest.CaptureFixture[str]) -> None:
    show()
    count()
    assert capfd.readouterr() == ("", "")


def test_lines_in_a_file_and_never_on_stdout(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show()
    monkeypatch.setattr(module, "_SECONDS_BEFORE_FIRST_LINE", -1)
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", -1)
    count(2)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["counting: 1/2, at 0", "counting: 2/2, at 1"]


class Clock:
    """Stands for the module ``time``; its seconds pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_file_is_told_the_time_that_is_left(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show()
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    with progress("training", 1000) as advance:
        advance(100)  # done before, by the run that is resumed: it says nothing about the pace
        for _ in range(60):
            clock.now += 2.0
            advance(note="loss 3.1")
    _, err = capfd.readouterr()
    assert err.splitlines() == [
        "training: 106/1000, about 30 min left; loss 3.1",  # after 12 s; 894 steps of 2 s
        "training: 122/1000, about 29 min left; loss 3.1",  # and more than 30 s later
        "training: 138/1000, about 29 min left; loss 3.1",
        "training: 154/1000, about 28 min left; loss 3.1",
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_a_bar_on_a_terminal_is_taken_down_again(
    fails: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show()
    monkeypatch.setattr(module, "_SECONDS_BEFORE_SHOWING", -1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    if fails:
        with pytest.raises(RuntimeError):
            count(fail_after=2)
    else:
        count()
    out, _ = capfd.readouterr()
    assert out == ""


def test_without_stderr_nothing_is_drawn(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under pythonw, or in a service that closed its streams; and not on stdout instead."""
    show()
    monkeypatch.setattr(module, "_SECONDS_BEFORE_FIRST_LINE", -1)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        count()
    assert capfd.readouterr() == ("", "")
