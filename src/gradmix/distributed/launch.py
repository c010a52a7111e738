"""Joining the processes that torchrun started, and what each of them may use.

torchrun tells every process by its environment who it is (RANK, WORLD_SIZE, LOCAL_RANK) and where the
others are (MASTER_ADDR, MASTER_PORT). Without those there is one process, and nothing here does anything.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ..errors import UserError, first_line
from .process_group import SINGLE_PROCESS, ProcessGroup, TorchProcessGroup

# How long one process waits for another. torchrun notices a dead one within a second by itself; this is
# for those that live but are busy, such as one that reads a million images from a slower disk.
_TIMEOUT = timedelta(minutes=30)
_SECONDS_BETWEEN_LOOKS = 0.02


@contextmanager
def join_processes() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, until the end of the block; without torchrun, none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {missing[0]} is not set: start the processes "
            "with torchrun, or unset WORLD_SIZE to train in one"
        )
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(_local_rank() % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"  # each tensor by where it is
    try:
        store, rank, size = next(rendezvous("env://", timeout=_TIMEOUT))
        own = dist.PrefixStore(_agree_on_prefix(store, rank, size), store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        at = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise UserError(f"could not meet the other processes at {at}: {first_line(error)}") from error
    group = TorchProcessGroup()
    try:
        yield group
    finally:
        group.leave()


def _agree_on_prefix(store: Any, rank: int, size: int) -> str:
    """Return a new word that rank 0 has agreed on with all the others.

    torchrun may hand the same store to the processes that it starts again after a failure; in it are the
    addresses of the dead. Its own count of restarts does not tell them apart: on the machine whose process
    died it grows, on another it may not. So everyone asks rank 0 under a name of its own, which no earlier
    process had, and rank 0 waits until each has had its answer.
    """
    own = uuid.uuid4().hex
    if rank:
        store.set(f"asks/{rank}", own)
        word = bytes(store.get(f"answer/{own}")).decode()
        store.set(f"{word}/heard/{rank}", b"yes")
        return word
    answered: dict[int, bytes] = {}
    deadline = time.monotonic() + _TIMEOUT.total_seconds()
    others = range(1, size)
    while not all(store.check([f"{own}/heard/{other}"]) for other in others):
        for other in others:
            if store.check([f"asks/{other}"]) and (name := store.get(f"asks/{other}")) != answered.get(other):
                store.set(f"answer/{name.decode()}", own)
                answered[other] = name
        if time.monotonic() > deadline:
            raise RuntimeError("the others did not come")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return own


def assign_device(device: torch.device, group: ProcessGroup) -> torch.device:
    """Return the GPU of this process where the recipe says just ``cuda``; refuse what cannot be shared."""
    if group.size == 1 or device.type == "cpu":
        return device
    if device.type == "mps":
        raise UserError("device mps: an Apple GPU serves one process only; use --device cpu or no torchrun")
    count, local = torch.cuda.device_count(), _local_rank()
    if device.index is not None:
        raise UserError(
            f"device {device}: with several processes each has a GPU of its own; use --device cuda"
        )
    if local >= count:
        raise UserError(f"more processes than GPUs on this machine; use torchrun --nproc-per-node {count}")
    return torch.device("cuda", local)


def split_batch(batch_size: int, group: ProcessGroup, statistics: str) -> int:
    """Return how many images of a batch each process works on; refuse a batch without equal shares."""
    share, rest = divmod(batch_size, group.size)
    if rest or not share:
        near = max(1, batch_size // group.size) * group.size  # never more than there are images
        raise UserError(
            f"a batch of {batch_size} images cannot be shared equally by {group.size} processes; use "
            f"--batch-size {near}, or another number of processes"
        )
    if group.size > 1 and statistics == "local" and share < 2:
        raise UserError(
            f"batch_norm local: {share} image per process has no statistics; raise --batch-size or use sync"
        )
    return share


def launch_id() -> str | None:
    """Return what the restarts of one torchrun share, and no two torchruns; None without torchrun."""
    given = os.environ.get("TORCHELASTIC_RUN_ID")
    if given is None:
        return None
    # Without --standalone or --rdzv-id it is the same word for everyone: then the parent tells them apart.
    return f"{socket.gethostname()} {os.getppid()}" if given == "none" else given


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))
