"""Real processes for tests: as torchrun starts them, but with the work given as a function."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path

import torch
import torch.multiprocessing as mp

from gradmix.training.distributed import joined
from gradmix.world import World

Work = Callable[[World, Path], None]


def in_processes(size: int, work: Work, folder: Path) -> None:
    """Run ``work(world, folder)`` in ``size`` processes; what one of them raises, this raises."""
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
    with joined() as world:
        work(world, folder)
