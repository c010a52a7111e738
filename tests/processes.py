"""Real processes for tests: as torchrun starts them, but with the work given as a function."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import torch.multiprocessing as mp

from gradmix.distributed import ProcessGroup, join_processes

Work = Callable[[ProcessGroup, Path], None]

# An environment for tests of how much memory is in use, which is not what glibc keeps of what was freed: 40
# to 110 MB in a training, another number in every run. With one arena, and every large block given
# back when it is freed, it keeps next to nothing.
KEEP_NOTHING = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(2**20)}


# Linux counts what the parent had when it started a process as that process's own peak. A test's worker may
# have gigabytes; this has next to nothing.
_MEASURE = """
import os, subprocess, sys
started = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(started.pid, 0)
print(usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_megabytes(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command to its end; return the most memory that it had resident, mapped files included."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _MEASURE, *words],
        env=os.environ | KEEP_NOTHING | dict(environment),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def in_processes(size: int, work: Work, folder: Path) -> None:
    """Run ``work(group, folder)`` in ``size`` processes; what one of them raises, this raises."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Forked from a process that has done nothing but import: each saves the seconds that torch takes.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["gradmix.recognition", "pytest"])
    mp.start_processes(  # type: ignore[no-untyped-call]
        _process, (size, port, work, folder), nprocs=size, start_method="forkserver"
    )


def _process(rank: int, size: int, port: int, work: Work, folder: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    with join_processes() as group:
        work(group, folder)
