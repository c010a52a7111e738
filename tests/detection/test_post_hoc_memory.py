"""Fitting and scoring take what a detector keeps, and some more, however many images: tried under a limit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.detection.post_hoc_toy import NEW

PROBE = """
import resource, sys, torch
from gradmix.detection import HeadWeights, Outputs, make_detector

names, keeps = sys.argv[1].split(","), int(sys.argv[2])
MiB = 2**20
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
head = HeadWeights(torch.randn(10, 256, generator=generator), torch.zeros(10))

def outputs(count):
    h = torch.randn(count, 256, generator=generator).relu_()
    return Outputs(h, torch.arange(count) % 10, head.logits(h), penultimate=h, head=head)

few, train, test = outputs(100), outputs(120_000), outputs(4_000)
for name in names:  # whatever libraries load and keep, they have it now
    make_detector(name).fit(few, 10, held_out=few).score(few)
with open("/proc/self/status") as f:
    now = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmData:"))
# The activations are 117 MiB; as float64, 234.
limit = now + (150 if keeps else 0) * MiB + 96 * MiB
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for name in names:
    print(make_detector(name).fit(train, 10, held_out=few).score(test).score.shape[0])
try:
    train.features.double()
    keeps or print("no limit")
except RuntimeError:
    print("refused")
"""
KEEPING = ("knn_distance", "relation")  # the activations of all training images, as float32
PERCENTILES = ("react", "vra")  # of 2²⁴ values, whose copies are 128 MiB


def probe(names: list[str], keeps: bool) -> list[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    words = [sys.executable, "-c", PROBE, ",".join(names), str(int(keeps))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all memory on Linux only")
def test_within_the_limit() -> None:
    others = [name for name in NEW if name not in (*KEEPING, *PERCENTILES)]
    assert probe(others, keeps=False) == ["4000"] * len(others) + ["refused"]
    for name in (*KEEPING, *PERCENTILES):
        assert "4000" in probe([name], keeps=True)
