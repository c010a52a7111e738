"""Minutes by the wall and by the cores, over several sittings."""

from __future__ import annotations

import time

import pytest

from gradmix.training.clock import Clock


def test_sleep_costs_minutes_but_no_core_minutes() -> None:
    clock = Clock()
    time.sleep(0.3)
    assert clock.minutes >= 0.3 / 60
    assert clock.core_minutes < 0.1 / 60


def test_earlier_sittings_count() -> None:
    clock = Clock()
    clock.go_on_from(7.0, 9.0)
    assert clock.minutes == pytest.approx(7, abs=0.01)
    assert clock.core_minutes == pytest.approx(9, abs=0.01)


def test_stopped_time_does_not_count() -> None:
    clock = Clock()
    with clock.stopped():
        time.sleep(0.3)
        sum(range(2_000_000))
    assert clock.minutes < 0.1 / 60
    assert clock.core_minutes < 0.02 / 60
