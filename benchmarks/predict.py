"""How fast ``gradmix predict --out`` names very many small images, next to the bare network, and its memory.

    python benchmarks/predict.py RUN [--images 100000] [--kind jpg] [--folder DIR]

Makes that many images of the network's size (noise; every thousandth cannot be read) in DIR, unless they are
there from before, runs the real command on them in a process of its own, and prints a table: seconds, images
a second and the peak of resident memory. The bare network sees as many images of the same size from memory,
in the same batches, without decoding, neighbours or writing; it runs before and after the command, for the
machine may not be the same throughout.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from gradmix import progress
from gradmix.batch.stream import choose_batch_size
from gradmix.recognition import Recognizer, load

A_FOLDER = 1000  # images in each, as photo archives have it
BARE_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--kind", default="jpg", choices=("jpg", "png"))
    parser.add_argument("--folder", type=Path, help="keep the images there (default: a temporary folder)")
    args = parser.parse_args()
    progress.show()
    recognizer = load(args.run)
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or Path(place, "images")
        make_images(folder, args.images, args.kind, recognizer)
        before = bare_rate(recognizer)
        seconds, megabytes = command(args.run, folder, Path(place, "answers.csv"))
        after = bare_rate(recognizer)
        with open(Path(place, "answers.csv"), encoding="utf-8") as rows:
            assert sum(1 for _ in rows) == args.images + 1
    rate, bare = args.images / seconds, (before + after) / 2
    print(f"encoder {recognizer.spec.encoder}, {recognizer.spec.image_size} px, {args.kind}")
    print("| images | seconds | images/s | bare network, images/s (before, after) | ratio | peak RSS, MB |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {args.images} | {seconds:.1f} | {rate:.0f} | {before:.0f}, {after:.0f} | {rate / bare:.2f} "
        f"| {megabytes:.0f} |"
    )


def make_images(folder: Path, number: int, kind: str, recognizer: Recognizer) -> None:
    wanted = recognizer.image_format
    shape = (wanted.size, wanted.size, 3)[: 3 if wanted.channels == 3 else 2]
    rng = np.random.default_rng(0)
    with progress.progress("making images", number) as advance:
        for i in range(number):
            file = folder / f"{i // A_FOLDER:04}" / f"{i:07}.{kind}"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                if i % 1000 == 500:
                    file.write_text("no image")
                else:
                    Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(file)
            advance()


@torch.no_grad()
def bare_rate(recognizer: Recognizer) -> float:
    """Images a second of network and normalisation alone."""
    wanted, size = recognizer.image_format, choose_batch_size(recognizer)
    batch = torch.randint(0, 256, (size, wanted.channels, wanted.size, wanted.size)).to(torch.uint8)
    batch = batch.contiguous(memory_format=torch.channels_last)
    recognizer.network(recognizer.normalizer(batch))
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < BARE_SECONDS:
        recognizer.network(recognizer.normalizer(batch))
        done += size
    return done / (time.perf_counter() - started)


def command(run: Path, folder: Path, out: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of the real command, start-up included."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "gradmix", "predict", run, folder, "--out", out], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - started, usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
