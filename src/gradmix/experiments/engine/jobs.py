"""Several processes at one experiment: on small networks, two trainings on a core each beat one on both.

There is no coordinator. A process takes the lock of a training before it does a trial; trials whose lock is
taken are tried again later. So the same command may also be given twice, or on two machines with one folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from ...machine import count_cores


@contextmanager
def run_helpers(command: Sequence[str], jobs: int, say: Callable[[str], None]) -> Iterator[None]:
    """Run ``jobs - 1`` more processes of ``command`` beside the block, the cores shared out among all.

    What they print on stderr is said. They end by themselves when nothing is left to take; leaving the block
    by an exception asks them to save and stop.
    """
    if jobs < 2:
        yield
        return
    threads = torch.get_num_threads()
    share = max(1, count_cores() // jobs)
    torch.set_num_threads(share)
    environment = os.environ | {"OMP_NUM_THREADS": str(share)}
    helpers = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(jobs - 1)
    ]
    readers = [threading.Thread(target=_pass_on, args=(helper, say), daemon=True) for helper in helpers]
    for reader in readers:
        reader.start()
    try:
        yield
    except BaseException:
        for helper in helpers:
            helper.terminate()
        raise
    finally:
        for helper, reader in zip(helpers, readers, strict=True):
            helper.wait()
            reader.join()
        torch.set_num_threads(threads)


def extend_this_command(*more: str) -> list[str]:
    """Return the command line that was given, with ``more`` words."""
    return [sys.executable, "-m", "gradmix", *sys.argv[1:], *more]


def _pass_on(helper: subprocess.Popen[str], say: Callable[[str], None]) -> None:
    assert helper.stderr is not None
    for line in helper.stderr:
        say(line.rstrip("\n"))
