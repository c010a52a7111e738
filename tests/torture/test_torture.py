"""A minute of the attacks with a fixed seed; `make torture` goes on for an hour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_minute_of_torture() -> None:
    command = [sys.executable, "-m", "tests.torture", "--minutes", "1", "--seed", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = done.stdout.splitlines()[1:]
    assert len(rows) >= 10
    assert all(row.split()[-1] == "0" for row in rows)
