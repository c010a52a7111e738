"""What fresh pages cost in training steps on many images: processor time of each, with and without.

python benchmarks/page_faults.py
python benchmarks/page_faults.py --method medaf --rounds 9
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from contextlib import nullcontext

import torch
from rich.table import Table

from gradmix.bench.methods import REFERENCE, make_step
from gradmix.bench.step import StepSettings
from gradmix.machine import reuse_freed_memory
from gradmix.progress import print_table


def count(step: Callable[[], object]) -> tuple[float, float, int]:
    """Return seconds as the user, seconds in the kernel, and page faults of one step."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (
        after.ru_utime - before.ru_utime,
        after.ru_stime - before.ru_stime,
        after.ru_minflt - before.ru_minflt,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", action="append", help="repeatable (default: conosr, rotpred)")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = StepSettings()
    names = dict.fromkeys([REFERENCE, *(args.method or ("conosr", "rotpred"))])
    steps = {name: make_step(name, settings) for name in names}
    table = Table("step of", "memory", "user ms", "kernel ms", "page faults", "x ce", box=None)
    for how, kept in (("as glibc does", nullcontext()), ("buffers kept", reuse_freed_memory())):
        with kept:
            for step in steps.values():
                step()
            found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in steps}
            for _ in range(args.rounds):
                for name, step in steps.items():
                    found[name].append(count(step))
        middle = {
            name: sorted(each, key=lambda c: c[0] + c[1])[args.rounds // 2] for name, each in found.items()
        }
        whole = sum(middle[REFERENCE][:2])
        for name, (user, kernel, faults) in middle.items():
            share = f"{(user + kernel) / whole:.2f}"
            table.add_row(name, how, f"{1000 * user:.0f}", f"{1000 * kernel:.0f}", f"{faults:,}", share)
    print_table(table)


if __name__ == "__main__":
    main()
