"""The cost model, against the real step: operations and traffic to the last, memory to a per cent."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cost_model.cost import (
    Link,
    Machine,
    Traffic,
    seconds,
    step_memory,
    step_time,
    step_traffic,
    step_work,
)
from benchmarks.cost_model.counts import SavedBytes, Touched, count_network, count_step, passes
from benchmarks.cost_model.index_cost import FORMATS, Index, exact, inverted, merge_bytes
from gradmix.bench.step import StepSettings, TrainingStep
from gradmix.distributed import ProcessGroup, TorchProcessGroup
from gradmix.errors import UserError
from gradmix.training import Recipe, Trained, make_recipe, train
from gradmix.training.seeds import generator_for
from gradmix.training.session import Watch
from tests.processes import in_processes

SMALL = StepSettings("resnet8_16", "half", 16, 16, ("conv3_2", "conv4_2"))
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"mixer": "none"},
    "cutmix": {"mixer": "cutmix"},
    "cross": {},
    "another target": {"target": "similarity"},
    "symmetric": {"pairing": "symmetric"},
    "supcon": {"lam": 0.0},
    "simclr": {"theta": 0.0},
}
NO_MAPS = ("plain", "cutmix", "supcon")
MACHINE = Machine("m", 1e9, 2e9, 1e9, 80e9, devices=2, near=Link(1e-3, 1e6), far=Link(1e-2, 1e5))


@pytest.mark.parametrize("arm", ARMS)
def test_operations_are_those_of_the_real_step(arm: str) -> None:
    recipe = SMALL.recipe(**ARMS[arm])
    step = TrainingStep(recipe, SMALL.batch())
    views = step.views(generator_for(0, "step"))
    with FlopCounterMode(display=False) as counter:
        step.method.step(views, generator_for(0, "step"))
    work = step_work(count_step(recipe), processes=1)
    # Not in the model: a map's sum over channels, two operations an activation.
    maps = 1.2e-4 * (arm not in NO_MAPS) * passes(recipe).mixed
    assert work.network + work.losses == pytest.approx(counter.get_total_flops(), rel=maps, abs=0)


@pytest.mark.parametrize("arm", ["plain", "cross", "symmetric"])
def test_memory_is_that_of_the_real_step(arm: str) -> None:
    """The most that autograd holds at one time: so many views' graphs, and the losses'."""
    recipe = SMALL.recipe(**ARMS[arm])
    step = TrainingStep(recipe, SMALL.batch())
    views = step.views(generator_for(0, "step"))
    live = LiveBytes(step.network)
    with live:
        step.method.step(views, generator_for(0, "step"))
    memory = step_memory(count_step(recipe), processes=1)
    pixels = passes(recipe).held * 4 * views.v1.numel()
    assert live.most == pytest.approx(memory.activations + memory.losses + pixels, rel=0.03)


class LiveBytes(saved_tensors_hooks):
    """Bytes of storages that autograd keeps, from saving to letting go; parameters are not counted."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.now = self.most = 0
        self.users: Counter[int] = Counter()
        self.parameters = {p.untyped_storage().data_ptr() for p in network.parameters()}
        super().__init__(self.pack, lambda kept: kept.tensor)

    def pack(self, tensor: Tensor) -> Kept:
        storage = tensor.untyped_storage()
        where, size = storage.data_ptr(), storage.nbytes()
        kept = Kept(tensor)
        if where not in self.parameters:
            self.now += size * (self.users[where] == 0)
            self.most = max(self.most, self.now)
            self.users[where] += 1
            weakref.finalize(kept, self.let_go, where, size)
        return kept

    def let_go(self, where: int, size: int) -> None:
        self.users[where] -= 1
        self.now -= size * (self.users[where] == 0)


class Kept:
    """Something that can be watched going."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_what_is_counted_without_computing_is_what_computing_counts() -> None:
    recipe = SMALL.recipe()
    step = TrainingStep(recipe, SMALL.batch())
    view = step.views(generator_for(0, "step")).v1
    saved = []
    for n in (4, 16):
        some = view[:n].clone()
        kept = SavedBytes(some, *step.network.parameters())
        with kept:
            step.network(some)
        saved.append(kept.total)
    assert (saved[1] - saved[0]) / 12 == count_network(recipe).saved


def test_weights_gradients_and_state() -> None:
    count = count_step(SMALL.recipe())
    parameters = sum(p.numel() for p in TrainingStep(SMALL.recipe(), SMALL.batch()).network.parameters())
    assert step_memory(count, 1).weights == 4 * 4 * parameters
    assert step_memory(count, 2).weights == 5 * 4 * parameters  # and the flat gradient that travels
    sgd = replace(count, recipe=SMALL.recipe(optimizer="sgd"))
    assert step_memory(sgd, 1).weights == 3 * 4 * parameters
    assert step_memory(count, 2).activations == step_memory(count, 1).activations / 2


def test_other_methods_are_refused() -> None:
    with pytest.raises(UserError, match="not of moco"):
        passes(make_recipe({"method": "moco"}))


def test_touched_bytes_of_one_addition() -> None:
    a = torch.ones(10)
    with Touched() as touched:
        a.view(2, 5).T.add(1.0)
    assert (touched.operations, touched.bytes) == (1, 80)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_traffic_is_what_the_processes_counted(size: int, tmp_path: Path) -> None:
    in_processes(size, train_and_count, tmp_path)
    for arm in ("plain", "cross", "symmetric", "local"):
        counted = json.loads((tmp_path / arm).read_text())
        calls: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        for traffic in step_traffic(count_step(arm_recipe(arm)), size):
            calls[traffic.kind] += STEPS * traffic.calls
            sent[traffic.kind] += STEPS * int(traffic.bytes)
        for kind in ("reduce", "gather", "exchange"):
            assert (calls[kind], sent[kind]) == tuple(counted.get(kind, (0, 0))), (arm, kind)


STEPS = 3


def arm_recipe(arm: str) -> Recipe:
    fields = {"batch_norm": "local"} if arm == "local" else ARMS[arm]
    return SMALL.recipe(**fields, max_steps=STEPS)


def train_and_count(group: ProcessGroup, folder: Path) -> None:
    """What rank 0 handed to each kind of collective in a few steps of a real training."""
    assert isinstance(group, TorchProcessGroup)
    for arm in ("plain", "cross", "symmetric", "local"):
        group.calls.clear()
        group.bytes.clear()
        # The last step saves, and with local statistics saving averages them: count what was before.
        train(SMALL.batch(), arm_recipe(arm), group=group, watch=writing(group, folder / arm))


def writing(group: TorchProcessGroup, file: Path) -> Watch:
    def watch(trained: Trained, total: int) -> None:
        if group.rank == 0:
            kinds = {kind: (group.calls[kind], group.bytes[kind]) for kind in group.calls}
            file.write_text(json.dumps(kinds))

    return watch


def test_bytes_on_the_way() -> None:
    """Of 8 bytes handed in by each of 4: a ring sends 3/4 twice, a gather to 3 others, an exchange 3/4."""
    sent = [Traffic("", kind, 1, 8).sent(4) for kind in ("reduce", "gather", "exchange")]
    assert sent == [12, 24, 6]


def test_one_process_sends_nothing_and_two_share_the_network_but_not_the_losses() -> None:
    count = count_step(SMALL.recipe())
    assert step_traffic(count, 1) == ()
    one, two, four = (step_time(count, MACHINE, p) for p in (1, 2, 4))
    assert one.communication == one.hideable == 0
    assert two.network == one.network / 2
    assert two.losses == one.losses
    # Four on two devices: no faster than two, and the losses are computed twice on each device.
    assert four.network == two.network
    assert four.losses == 2 * two.losses
    assert two.hideable == seconds(step_traffic(count, 2)[-2], MACHINE, 2) < two.communication


def test_small_batches_wait_for_their_operations_to_start() -> None:
    count = count_step(SMALL.recipe())
    slow = replace(MACHINE, per_operation=1.0)
    assert step_time(count, slow, 2).network == 3 * count.network.operations


def test_the_slower_link_is_between_nodes() -> None:
    cluster = replace(MACHINE, nodes=2)
    assert cluster.link(2) == MACHINE.near
    assert cluster.link(4) == MACHINE.far
    assert MACHINE.link(4) == MACHINE.near  # one node: four processes share its two devices
    assert cluster.crowding(4) == 1
    assert MACHINE.crowding(4) == 2


def test_index_bytes_and_devices() -> None:
    sizes = {f.name: Index(10**9, 128, 1000, f).bytes / 1e9 for f in FORMATS}
    assert list(sizes.values()) == [536, 280, 152, 40]
    assert Index(10**9, 128, 1000).devices_needed(MACHINE) == 8  # 536 GB in 72 GB each


def test_exact_queries_are_bound_by_reading_or_by_computing() -> None:
    index = Index(10**6, 100, 10)
    one = exact(index, MACHINE, 1, queries=1)
    assert one.flops == 2e8
    assert one.read == 4e8
    assert one.seconds == pytest.approx(0.4 + 0.008)  # reading 400 MB at 1 GB/s; 8 MB of similarities
    many = exact(index, MACHINE, 1, queries=512)
    assert many.read == one.read
    assert many.seconds == pytest.approx(512 * (0.1 + 0.008))  # 0.2 GFLOP a query at 2 GFLOP/s


def test_sharding_divides_the_work_and_adds_the_merge() -> None:
    index = Index(10**6, 100, 10)
    whole = exact(index, MACHINE, 2, queries=512)
    alone = exact(index, MACHINE, 1, queries=512)
    assert whole.seconds == pytest.approx(alone.seconds / 2 + 1e-3 + 512 * 12 / 1e6)
    assert merge_bytes(index, whole_classes=False, k=3) == 4 * 10 * 3


def test_inverted_lists_read_their_share() -> None:
    index = Index(10**6, 100, 10)
    some = inverted(index, MACHINE, 1, queries=10, lists=1000, probes=10)
    assert some.read == 10 * 1e4 * 400
    assert some.flops == 2 * 10 * 100 * (1000 + 1e4)
    all_of_them = inverted(index, MACHINE, 1, queries=1, lists=1000, probes=1000)
    assert all_of_them.read == exact(index, MACHINE, 1, queries=1).read
