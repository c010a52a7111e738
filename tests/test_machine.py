"""What is asked of the C library while a training runs, and that it is taken back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import pytest

from gradmix.machine import reuse_freed_memory
from gradmix.training import train
from tests.training.tiny import tiny_images, tiny_recipe

MIB = 2**20
OF_GLIBC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


class Libc:
    """Writes down what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    def mallopt(self, which: int, value: int) -> int:
        assert -(2**31) <= value < 2**31  # an int of C
        self.asked.append(("mallopt", which, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.asked.append(("trim", pad, 0))
        return 1


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch) -> Libc:
    made = Libc()
    load: Callable[..., object] = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name, *more: made if name is None else load(name, *more))
    monkeypatch.setattr(sys, "platform", "linux")
    for name in OF_GLIBC:
        monkeypatch.delenv(name, raising=False)
    return made


def test_large_buffers_are_kept_and_given_back_at_the_end(libc: Libc) -> None:
    with reuse_freed_memory():
        assert [(which, value >= 1024 * MIB) for _, which, value in libc.asked] == [(-3, True), (-1, True)]
    assert libc.asked[2:] == [("mallopt", -3, 32 * MIB), ("mallopt", -1, 64 * MIB), ("trim", 0, 0)]


def test_given_back_after_an_error_too(libc: Libc) -> None:
    with pytest.raises(ValueError, match="inside"), reuse_freed_memory():
        raise ValueError("inside")
    assert libc.asked[-1] == ("trim", 0, 0)


def test_a_training_asks_for_it(libc: Libc) -> None:
    train(tiny_images(4), tiny_recipe(method="ce", max_steps=1))
    assert len(libc.asked) == 5


@pytest.mark.parametrize("name", OF_GLIBC)
def test_settings_of_the_environment_stand(libc: Libc, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1048576")
    with reuse_freed_memory():
        pass
    assert libc.asked == []


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with reuse_freed_memory():
        pass
    monkeypatch.setattr(sys, "platform", "win32")
    with reuse_freed_memory():
        pass
