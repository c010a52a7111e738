"""``python -m gradmix``: how its process ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = """
import atexit, runpy, sys
atexit.register(print, "taken apart")
sys.argv = ["gradmix", *sys.argv[1:]]
runpy.run_module("gradmix", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("environment", "at_once"),
    [
        ({}, False),
        ({"WORLD_SIZE": "2", "RANK": "0"}, False),
        ({"WORLD_SIZE": "2", "RANK": "1"}, True),
        ({"WORLD_SIZE": "1", "RANK": "1"}, False),
    ],
)
@pytest.mark.parametrize(("words", "code"), [([], 0), (["nonsense"], 2)])
def test_processes_that_only_helped_end_at_once(
    environment: dict[str, str], at_once: bool, words: list[str], code: int
) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "RANK")}
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *words], env=plain | environment, capture_output=True, text=True
    )
    assert done.returncode == code
    assert ("taken apart" in done.stdout) != at_once
    assert ("commands:" in done.stdout) == (code == 0)  # the whole help, though nothing is flushed any more
