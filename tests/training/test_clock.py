"""Minutes by the wall and by the cores, over several sittings; by a clock that the test turns."""

from __future__ import annotations

import pytest

from gradmix.training import clock as clock_module
from gradmix.training.clock import Clock


class Turned:
    """Stands for the module ``time``; seconds pass when the test says so, on a busy machine too."""

    def __init__(self) -> None:
        self.wall, self.cores = 1000.0, 50.0

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.cores

    def pass_by(self, wall: float, cores: float) -> None:
        self.wall += wall
        self.cores += cores


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Turned:
    found = Turned()
    monkeypatch.setattr(clock_module, "time", found)
    return found


def test_sleep_costs_minutes_but_no_core_minutes(turned: Turned) -> None:
    clock = Clock()
    turned.pass_by(wall=30, cores=0)
    assert (clock.minutes, clock.core_minutes) == (0.5, 0)
    turned.pass_by(wall=30, cores=120)  # four threads
    assert (clock.minutes, clock.core_minutes) == (1, 2)


def test_earlier_sittings_count(turned: Turned) -> None:
    clock = Clock()
    clock.resume_from(7.0, 9.0)
    turned.pass_by(wall=60, cores=30)
    assert (clock.minutes, clock.core_minutes) == (8, 9.5)


def test_stopped_time_does_not_count(turned: Turned) -> None:
    clock = Clock()
    turned.pass_by(wall=60, cores=30)
    with clock.pause():
        turned.pass_by(wall=600, cores=300)
    turned.pass_by(wall=60, cores=30)
    assert (clock.minutes, clock.core_minutes) == (2, 1)


def test_it_is_the_clock_of_this_machine() -> None:
    clock = Clock()
    sum(range(200_000))
    assert clock.minutes > 0
    assert clock.core_minutes > 0
