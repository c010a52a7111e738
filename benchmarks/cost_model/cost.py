"""The cost of a training step on machines that are not here: operations, memory, traffic, time.

Arithmetic on the counts of :mod:`.counts`. Letters: B images in the whole batch, p processes, b = B/p
images each, P parameters, d dimensions of the embedding, V views that go through the network each way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .counts import StepCount

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Link:
    """What joins processes: seconds of an empty collective between two, bytes per second each way."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Machine:
    """What its devices (GPUs, or processor cores) achieve, not what is printed on the box."""

    name: str
    rate: float  # FLOP/s of the network, forward and backward, on one device
    matmul_rate: float  # FLOP/s of a float32 matrix product
    memory_bandwidth: float  # bytes/s of operations that do little but read and write
    memory: float  # bytes
    devices: int  # in a node
    near: Link  # inside a node
    far: Link  # between nodes
    nodes: int = 1
    per_operation: float = 0.0  # seconds to start one: a floor under small batches; 0 if ``rate`` has it

    def link(self, processes: int) -> Link:
        return self.far if processes > self.devices and self.nodes > 1 else self.near

    def crowding(self, processes: int) -> float:
        """Processes that share a device: p / min(p, devices)."""
        return max(1.0, processes / (self.nodes * self.devices))


@dataclass(frozen=True)
class StepWork:
    """FLOP of one process in one step."""

    network: float
    losses: float


def step_work(count: StepCount, processes: int) -> StepWork:
    """b·(V·(forward + backward) + map passes) in the network; the losses do not get smaller with p.

    With ``cross`` that is 9F per image, F = one forward.
    """
    p, network = count.passes, count.network
    each = p.views * (network.forward + network.backward) + p.map_passes * network.maps
    return StepWork(count.recipe.training.batch_size / processes * each, count.losses.flops)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: float  # parameters, their gradients, the optimiser's state, the flat gradient that travels
    activations: float
    pixels: float
    losses: float

    @property
    def total(self) -> float:
        return self.weights + self.activations + self.pixels + self.losses


def step_memory(count: StepCount, processes: int) -> Memory:
    """4P·(1 + 1 + 2 of Adam, 1 of SGD, + 1 if p > 1) + held·b·saved + b·4CHW·(2 views + 2 per mixed view)."""
    settings, network = count.recipe.training, count.network
    b = settings.batch_size / processes
    copies = 2 + (1 if settings.optimizer == "sgd" else 2) + (processes > 1)
    return Memory(
        weights=FLOAT * network.parameters * copies,
        activations=count.passes.held * b * network.saved,
        pixels=b * FLOAT * network.pixels * (2 + 2 * count.passes.mixed),
        losses=count.losses.saved,
    )


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind in one step; ``bytes`` is what one process hands to all of them together."""

    what: str
    kind: str  # as ProcessGroup counts them: reduce, gather, exchange, agree
    calls: int
    bytes: float

    def sent(self, processes: int) -> float:
        """Bytes that leave a process which hands in n: n·(p−1)/p of an exchange, twice that of a reduction
        (in a ring), n·(p−1) of a gather."""
        others = processes - 1
        share = {"gather": others, "exchange": others / processes}.get(self.kind, 2 * others / processes)
        return self.bytes * share


def step_traffic(count: StepCount, processes: int) -> tuple[Traffic, ...]:
    """What ``ProcessGroup`` is asked for in one step of ``train``; nothing in one process.

    BatchNorm: 2·C float64 there and 2·C float32 back, per layer and view. Embeddings: b·d floats per view.
    Patches: b areas per mixed view. Partners: b images per mixed view.
    Gradients: P floats. Stop or save: 2 ints.
    """
    if processes == 1:
        return ()
    p, network, recipe = count.passes, count.network, count.recipe
    b = recipe.training.batch_size // processes
    sync = recipe.training.batch_norm == "sync"
    layers = p.views * 2 * len(network.channels) + p.map_passes * len(network.map_channels)
    statistics = p.views * 24 * sum(network.channels) + p.map_passes * 8 * sum(network.map_channels)
    every = (
        Traffic("BatchNorm", "reduce", sync * layers, sync * statistics),
        Traffic("embeddings", "gather", p.views, p.views * b * recipe.model.feature_dim * FLOAT),
        Traffic("patches", "gather", p.mixed, p.mixed * b * FLOAT),
        Traffic("partners", "exchange", p.mixed, p.mixed * b * network.pixels * FLOAT),
        Traffic("gradients", "reduce", 1, network.parameters * FLOAT),
        Traffic("stop or save", "agree", 1, 8),
    )
    return tuple(traffic for traffic in every if traffic.calls)


@dataclass(frozen=True)
class StepTime:
    """Seconds, one after the other: nothing is overlapped in the code, so nothing is here."""

    network: float
    losses: float
    around: float  # drawing the views, and the optimiser
    communication: float
    hideable: float  # of the communication: the gradients, which could travel during the way back

    @property
    def total(self) -> float:
        return self.network + self.losses + self.around + self.communication


def step_time(count: StepCount, machine: Machine, processes: int) -> StepTime:
    """max(FLOP/rate, operations·start) + losses + touched bytes/bandwidth + collectives (:func:`seconds`).

    Touched outside network and losses: two views, and 28P bytes of Adam. Where processes share a device,
    everything they compute takes p / min(p, devices) times as long.
    """
    work, crowd, network = step_work(count, processes), machine.crowding(processes), count.network
    started = count.passes.views * network.operations * machine.per_operation
    views = 2 * count.view * count.recipe.training.batch_size / processes
    traffic = {t.what: seconds(t, machine, processes) for t in step_traffic(count, processes)}
    return StepTime(
        network=crowd * max(work.network / machine.rate, started),
        losses=crowd * (work.losses / machine.matmul_rate + count.losses.touched / machine.memory_bandwidth),
        around=crowd * (views + 7 * FLOAT * network.parameters) / machine.memory_bandwidth,
        communication=sum(traffic.values()),
        hideable=traffic.get("gradients", 0.0),
    )


def seconds(traffic: Traffic, machine: Machine, processes: int) -> float:
    """calls·⌈log₂p⌉·latency + bytes sent / bandwidth.

    >>> m = Machine("", 1, 1, 1, 1, devices=4, near=Link(1e-3, 1e6), far=Link(1, 1))
    >>> seconds(Traffic("gradients", "reduce", 1, 2e6), m, 2)  # 1 ms, and 2 MB at 1 MB/s
    2.001
    """
    link = machine.link(processes)
    hops = math.ceil(math.log2(processes))
    return traffic.calls * hops * link.latency + traffic.sent(processes) / link.bandwidth
