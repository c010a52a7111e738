"""Attack for some minutes, and print a table: attack, tries, survived, lost.

  python -m tests.torture --minutes 60 --seed 1

Every attack gets the same share of the time, and at least one try. Ends with 1 if anything was lost. What
a try does depends on the seed and its number; when a process is killed, on the machine too.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.torture import on_files, on_processes
from tests.torture.on_files import Files

ATTACKS: dict[str, Callable[[Files, random.Random], str]] = {
    "bit flips in a model": on_files.flipped_model,
    "bit flips in last.pt": on_files.flipped_state,
    "writes that fail": on_files.failing_write,
    "mutated images, 10 per try": on_files.mutated_image,
    "SIGKILL: train": on_processes.killed_training,
    "SIGKILL: enroll": on_processes.killed_enroll,
    "SIGKILL: predict --out": on_processes.killed_predict,
    "SIGKILL: serve": on_processes.killed_server,
    "full disk: enroll": on_processes.full_disk,
    "200 malformed requests": on_processes.malformed_requests,
    "300 idle connections": on_processes.hostile_clients,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    args = parser.parse_args()
    chosen = {name: attack for name, attack in ATTACKS.items() if args.only in name}
    lost_at_all = 0
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        print(f"{'attack':<30}{'tries':>8}{'survived':>10}{'lost':>6}", flush=True)
        for name, attack in chosen.items():
            end, tries, lost = time.monotonic() + 60 * args.minutes / len(chosen), 0, list[str]()
            while tries == 0 or time.monotonic() < end:
                try:
                    problem = attack(files, random.Random(f"{args.seed} {name} {tries}"))
                except Exception:  # a traceback is what must never come
                    problem = traceback.format_exc()
                if problem:
                    lost.append(f"try {tries}: {problem}")
                tries += 1
            print(f"{name:<30}{tries:>8}{tries - len(lost):>10}{len(lost):>6}", flush=True)
            for problem in lost[:3]:
                print(problem, file=sys.stderr, flush=True)
            lost_at_all += len(lost)
    return 1 if lost_at_all else 0


if __name__ == "__main__":
    sys.exit(main())
