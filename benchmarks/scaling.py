"""The cost model of docs/scale.md: its tables for machines that are not here, and its check on this one.

python benchmarks/scaling.py --tables
python benchmarks/scaling.py
python benchmarks/scaling.py --rounds 3 --sweeps 1 --batch-size 64

The check starts 1, 2 and 4 processes of one thread each. It first measures what the machine can do: the bare
network (in one process, and in two at once), a matrix product, a log-sum-exp, an empty and a large reduction.
From these the model predicts a training step and a search; then real training and a real search are timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.multiprocessing as mp
from cost_model.cost import Link, Machine, step_time, step_traffic, step_work
from cost_model.counts import StepCount, Touched, count_step
from cost_model.index_cost import Index, exact
from scale_tables import PARTS, parts, print_table, print_tables
from torch import nn

from gradmix import progress
from gradmix.bench.step import StepSettings
from gradmix.detection import KNN, Outputs
from gradmix.distributed import ProcessGroup, TorchProcessGroup, join_processes
from gradmix.distributed.batch_norm import synchronize
from gradmix.machine import count_cores
from gradmix.training import Trained, train
from gradmix.training.seeds import generator_for
from gradmix.training.session import build_network

CORES = count_cores()
SMALL, LARGE = 128, 2**20  # floats in a reduction: a BatchNorm layer's, and enough to see the bandwidth
INDEX = Index(features=100_000, dim=128, classes=100)
QUERIES = 512


@dataclass(frozen=True)
class Measured:
    """Medians, seconds unless it says otherwise; 0 where so many processes do not measure it."""

    network: float  # three views each way through the bare network, all processes at once
    matmul: float  # QUERIES by 128 with 128 by 4096
    bandwidth: float  # bytes/s that a masked log-sum-exp and its gradient touch
    small: float  # reductions
    large: float
    step: float
    search: float
    calls: dict[str, float]  # of the collectives in one step
    bytes: dict[str, float]


def check(settings: StepSettings, rounds: int, sweeps: int) -> None:
    sizes = (1, 2, 4)
    found: dict[int, list[Measured]] = {size: [] for size in sizes}
    with progress.progress("measuring", sweeps * len(sizes)) as advance:
        for _ in range(sweeps):  # in turn, so that a busy moment does not meet one of them alone
            for size in sizes:
                found[size].append(in_processes(size, settings, rounds))
                advance(1, note=f"{size} processes")
    middle = {size: median(every) for size, every in found.items()}
    report(settings, middle)


def report(settings: StepSettings, found: dict[int, Measured]) -> None:
    count = count_step(settings.recipe())
    machines = {size: machine_of(count, found, size) for size in found}
    print_constants(machines, found)
    print_steps(count, machines, found)
    print_traffic(count, found)
    predicted, measured = exact(INDEX, machines[1], 1, QUERIES).seconds, found[1].search
    error = predicted / measured - 1
    print(
        f"{QUERIES} queries to {INDEX.features:,} features of {INDEX.classes} classes: predicted "
        f"{1000 * predicted:.0f} ms, measured {1000 * measured:.0f} ms, error {error:+.0%}."
    )


def print_constants(machines: dict[int, Machine], found: dict[int, Measured]) -> None:
    rows = [
        ("the network in one process", f"{machines[1].rate / 1e9:.1f} GFLOP/s"),
        ("the network in two at once", f"{machines[2].rate / 1e9:.1f} GFLOP/s each"),
        ("a matrix product", f"{machines[1].matmul_rate / 1e9:.1f} GFLOP/s"),
        ("a log-sum-exp and its gradient", f"{machines[1].memory_bandwidth / 1e9:.1f} GB/s touched"),
    ]
    for size in (size for size in found if size > 1):
        bandwidth = machines[size].near.bandwidth / 1e9
        speed = f"{1e6 * found[size].small:.0f} µs + bytes sent / {bandwidth:.2f} GB/s"
        rows.append((f"a reduction of {size} processes", speed))
    print_table((f"this machine ({CORES} cores)", "measured"), rows)


def print_steps(count: StepCount, machines: dict[int, Machine], found: dict[int, Measured]) -> None:
    rows = []
    for size, measured in found.items():
        now = step_time(count, machines[size], size)
        both = (f"{1000 * now.total:.0f}", f"{1000 * measured.step:.0f}")
        rows.append((str(size), *parts(now), *both, f"{now.total / measured.step - 1:+.0%}"))
    print_table(("processes", *PARTS, "predicted ms", "measured ms", "error"), rows)


def print_traffic(count: StepCount, found: dict[int, Measured]) -> None:
    rows = []
    for size, measured in found.items():
        for kind in ("reduce", "gather", "exchange"):
            same = [t for t in step_traffic(count, size) if t.kind == kind]
            if same:
                calls, amount = sum(t.calls for t in same), sum(t.bytes for t in same)
                predicted = f"{calls} calls, {amount:,.0f} B"
                seen = f"{measured.calls[kind]:g} calls, {measured.bytes[kind]:,.0f} B"
                rows.append((str(size), kind, predicted, seen))
    print_table(("processes", "collective", "a step, predicted", "a step, counted"), rows)


def machine_of(count: StepCount, found: dict[int, Measured], size: int) -> Machine:
    """The model's constants for ``size`` processes; the rate of more than two is that of two."""
    busy = min(size, 2)
    link = Link(0.0, 1.0)
    if size > 1:
        hops = (size - 1).bit_length()
        amount = 4 * LARGE * 2 * (size - 1) / size
        link = Link(found[size].small / hops, amount / max(1e-9, found[size].large - found[size].small))
    return Machine(
        name="this",
        rate=step_work(count, busy).network / found[busy].network,
        matmul_rate=2 * QUERIES * 128 * 4096 / found[1].matmul,
        memory_bandwidth=found[1].bandwidth,
        memory=0.0,
        devices=max(2, CORES),  # two were measured at once, whatever the cores
        near=link,
        far=link,
    )


def median(every: Sequence[Measured]) -> Measured:
    names = ("network", "matmul", "bandwidth", "small", "large", "step", "search")
    return replace(every[0], **{n: statistics.median(getattr(m, n) for m in every) for n in names})


def in_processes(size: int, settings: StepSettings, rounds: int) -> Measured:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "measured.json"
        mp.spawn(_process, (size, port, settings, rounds, out), nprocs=size)  # type: ignore[attr-defined,no-untyped-call]
        return Measured(**json.loads(out.read_text()))


def _process(rank: int, size: int, port: int, settings: StepSettings, rounds: int, out: Path) -> None:
    who = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in who.items()} | {"MASTER_ADDR": "127.0.0.1"}
    torch.set_num_threads(1)
    with join_processes() as group:
        found = measure(settings, rounds, group)
        if rank == 0:
            out.write_text(json.dumps(found.__dict__))


def measure(settings: StepSettings, rounds: int, group: ProcessGroup) -> Measured:
    alone, several = group.size == 1, group.size > 1
    small, large = torch.zeros(SMALL), torch.zeros(LARGE)
    left, right = torch.randn(QUERIES, 128), torch.randn(128, 4096)
    # Oversubscribed processes share the rate of those that have a core each: not measured again.
    network = timed(bare_network(settings, group), rounds, group) if group.size <= 2 else 0.0
    step, calls, amount = training_steps(settings, rounds, group)
    return Measured(
        network=network,
        matmul=timed(lambda: left @ right, 20 * rounds) if alone else 0.0,
        bandwidth=touched_a_second(rounds) if alone else 0.0,
        small=timed(lambda: group.all_reduce_([small]), 50 * rounds) if several else 0.0,
        large=timed(lambda: group.all_reduce_([large]), 5 * rounds) if several else 0.0,
        step=step,
        search=search_seconds(rounds) if alone else 0.0,
        calls=calls,
        bytes=amount,
    )


def timed(work: Callable[[], object], rounds: int, group: ProcessGroup | None = None) -> float:
    """Median; the first round is not counted. With a group, all processes start each round together."""
    taken = []
    for _ in range(rounds + 1):
        if group:
            group.any(False)
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def touched_a_second(rounds: int) -> float:
    """What surrounds the network reads and writes about as fast as this: the heart of every loss."""
    logits, itself = torch.randn(512, 512, requires_grad=True), torch.eye(512, dtype=torch.bool)

    def work() -> None:
        total = logits.masked_fill(itself, -torch.inf).logsumexp(1).sum()
        torch.autograd.grad(total, logits)

    with Touched() as touched:
        work()
    return float(touched.bytes / timed(work, 20 * rounds))


def bare_network(settings: StepSettings, group: ProcessGroup) -> Callable[[], None]:
    """Three views each way as in a GradMix step, with several processes' BatchNorm but no collective."""
    network = build_network(settings.recipe(), 2).train()
    silent = ProcessGroup()
    silent.size = group.size
    synchronize(network, silent)
    shape = (settings.batch_size // group.size, 3, settings.image_size, settings.image_size)
    view = torch.randn(shape, generator=generator_for(0, "bench")).contiguous(
        memory_format=torch.channels_last
    )
    return lambda: three_views(network, view)


def three_views(network: nn.Module, view: torch.Tensor) -> None:
    network.zero_grad()
    z1, z2 = network(view), network(view)
    torch.autograd.backward(z1, torch.ones_like(z1))
    del z1
    zm = network(view)
    torch.autograd.backward([z2, zm], [torch.ones_like(z2), torch.ones_like(zm)])


def training_steps(
    settings: StepSettings, rounds: int, group: ProcessGroup
) -> tuple[float, dict[str, float], dict[str, float]]:
    """Median seconds of a step of real training, and what it handed to each kind of collective."""
    ends: list[float] = []
    calls: dict[str, float] = {}
    amount: dict[str, float] = {}

    def watch(trained: Trained, total: int) -> None:
        ends.append(time.perf_counter())
        if isinstance(group, TorchProcessGroup):
            calls.update({kind: group.calls[kind] / len(ends) for kind in group.calls})
            amount.update({kind: group.bytes[kind] / len(ends) for kind in group.bytes})

    if isinstance(group, TorchProcessGroup):
        group.calls.clear()
        group.bytes.clear()
    train(settings.batch(), settings.recipe(max_steps=rounds + 2, device="cpu"), group=group, watch=watch)
    steps = [after - before for before, after in itertools.pairwise(ends[1:])]
    return statistics.median(steps), calls, amount


def search_seconds(rounds: int) -> float:
    generator = generator_for(0, "search")
    features = torch.randn(INDEX.features, INDEX.dim, generator=generator)
    labels = torch.arange(INDEX.features) % INDEX.classes
    knn = KNN(k=3).fit(Outputs(features, labels), INDEX.classes)
    queries = Outputs(
        torch.randn(QUERIES, INDEX.dim, generator=generator), torch.zeros(QUERIES, dtype=torch.int64)
    )
    return timed(lambda: knn.score(queries), max(2, rounds // 2))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", action="store_true", help="the tables for other machines; measures nothing"
    )
    parser.add_argument("--encoder", default="resnet8_32")
    parser.add_argument("--stem", default="half")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7, help="steps that are timed, in every sweep")
    parser.add_argument(
        "--sweeps", type=int, default=3, help="times that 1, 2 and 4 processes take their turn"
    )
    args = parser.parse_args()
    progress.show()
    if args.tables:
        print_tables()
    else:
        settings = StepSettings(args.encoder, args.stem, batch_size=args.batch_size)
        check(settings, args.rounds, args.sweeps)


if __name__ == "__main__":
    main()
