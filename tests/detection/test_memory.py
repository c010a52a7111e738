"""Searching takes chunk_bytes beside the features, however many there are: tried under a real limit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The limit is on what the process may have in all from here on: its features, then so much more and no more.
PROBE = """
import resource, sys, torch
from gradmix.detection import KNN, Outputs

features, classes, queries, budget = map(int, sys.argv[1:])
MiB = 2**20

def limit(more):
    with open("/proc/self/status") as f:
        now = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
some = Outputs(torch.randn(300, 128), torch.arange(300) % 3)
KNN().fit(some, 3).leave_one_out()  # whatever libraries load and keep, they have it now
train = torch.randn(features, 128, generator=generator)
labels = torch.randint(0, classes, (features,), generator=generator)
test = Outputs(torch.randn(queries, 128, generator=generator), torch.full((queries,), -1))
bank = features * (4 * 128 + 24) * 6 // 5
small = 24 * MiB  # what the allocator and the interpreter keep for themselves
limit(bank + 40 * features + budget + small)  # 40: sorting the labels
knn = KNN(chunk_bytes=budget).fit(Outputs(train, labels), classes)
del train
limit(budget + small)
print(knn.score(test).label.shape[0])
try:
    torch.empty(features * 128 + (budget + small) // 4).fill_(1)  # the limit is real
except RuntimeError:
    print("refused")
"""


def probe(features: int, classes: int, queries: int, budget: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROBE, *map(str, (features, classes, queries, budget))]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts all memory on Linux only")


@pytest.mark.parametrize("classes", [1, 50, 5000])
def test_within_the_limit(classes: int) -> None:
    done = probe(100_000, classes, 512, 32 * 2**20)  # all similarities at once would be 195 MiB
    assert done.stdout.split() == ["512", "refused"], done.stderr


@pytest.mark.slow
def test_a_million_features_within_the_limit() -> None:
    done = probe(1_000_000, 1000, 512, 64 * 2**20)
    assert done.stdout.split() == ["512", "refused"], done.stderr
