"""Several processes on one batch compute what one process computes on all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmix.data import ImageSet
from gradmix.distributed import (
    SINGLE_PROCESS,
    ProcessGroup,
    assign_device,
    join_processes,
    launch_id,
    split_batch,
)
from gradmix.errors import UserError
from gradmix.methods import METHODS, Context, Method, Stage, Views
from gradmix.methods.cross_entropy import CrossEntropySettings
from gradmix.models import Network
from gradmix.training import Interrupted, Recipe, RunFolder, Trained, session, train
from gradmix.training.session import build_network
from tests.processes import in_processes
from tests.training.tiny import recipe_of, tiny_images, tiny_recipe

# Maps as large as the image. A smaller one, enlarged, has a plateau at its border: if the peak is there,
# the last bit decides where on it.
FULL = {"stem": "small", "layers": "conv2_2", "encoder": "resnet8_16"}
RUN = FULL | {"epochs": 2, "batch_size": 8, "log_every": 1, "optimizer": "sgd", "lr": 0.01, "max_steps": 6}


def train_in_float64(run: RunFolder | None, group: ProcessGroup = SINGLE_PROCESS) -> Trained:
    """Train as ``train`` does, but the network and its inputs in float64.

    Sums over a batch are rounded differently where processes share it. In float32 that grows over six
    steps, by how much depends on the processor (1e-3 on one with AVX2); in float64 it stays below 1e-13.
    """

    def build(recipe: Recipe, num_classes: int) -> nn.Module:
        return build_network(recipe, num_classes).double()

    def in_float64(images: Tensor) -> Tensor:
        return images.double().contiguous(memory_format=torch.channels_last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build_network", build)
        patch.setattr(session, "channels_last", in_float64)
        return train(tiny_images(8), tiny_recipe(**RUN), run, group)


def train_all(group: ProcessGroup, folder: Path) -> None:
    """The rest of a run that is in ``folder``; only the first process has that folder."""
    run = RunFolder.open(folder / "run") if group.rank == 0 else None
    trained = train_in_float64(run, group)
    torch.save(trained.network.state_dict(), folder / f"end{group.rank}.pt")


def new_run(folder: Path) -> RunFolder:
    return RunFolder.create(folder / "run", tiny_recipe(**RUN), {})


def end_of(run: RunFolder) -> dict[str, Tensor]:
    state = run.load_state()
    assert state is not None
    network: dict[str, Tensor] = state["method"]
    return network


def assert_same_training(ours: RunFolder, theirs: RunFolder) -> None:
    """Same steps, same losses and weights but for the rounding of float64."""
    rows, others = ours.history(), theirs.history()
    assert [row["step"] for row in rows] == [row["step"] for row in others] == [1, 2, 3, 4, 5, 6]
    for row, other in zip(rows, others, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-9)
    end, other_end = end_of(ours), end_of(theirs)
    assert end.keys() == other_end.keys()
    for name, value in end.items():
        torch.testing.assert_close(value, other_end[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = new_run(tmp_path_factory.mktemp("whole"))
    train_in_float64(run)
    return run


@pytest.mark.slow
def test_a_run_of_two_processes_is_that_of_one(whole: RunFolder, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    in_processes(2, train_all, tmp_path)
    assert_same_training(run, whole)
    ends = [torch.load(tmp_path / f"end{rank}.pt") for rank in range(2)]
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name  # the processes agree to the last bit


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 4)])
def test_resumed_on_another_number_of_processes(
    before: int, after: int, whole: RunFolder, tmp_path: Path
) -> None:
    run = new_run(tmp_path)
    for size, steps in ((before, "half"), (after, "rest")):
        work = half_of_it if steps == "half" else train_all
        if size == 1:
            work(SINGLE_PROCESS, tmp_path)
        else:
            in_processes(size, work, tmp_path)
    assert_same_training(run, whole)


def half_of_it(group: ProcessGroup, folder: Path) -> None:
    """Stop after step 3: one process is asked to, all do."""
    done = [0]

    def counting(optimizer: torch.optim.Optimizer, lr: float, take: Any = session.set_learning_rate) -> None:
        done[0] += 1
        take(optimizer, lr)

    class AskedOnTheLast:
        def __enter__(self) -> Any:
            return lambda: done[0] == 3 and group.rank == group.size - 1

        def __exit__(self, *error: object) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "set_learning_rate", counting)
        patch.setattr(session, "stop_requests", AskedOnTheLast)
        with pytest.raises(Interrupted, match="after step 3 of 6"):
            train_all(group, folder)


@pytest.mark.slow
def test_local_statistics_and_mistakes_in_two_processes(tmp_path: Path) -> None:
    in_processes(2, check_local_and_mistakes, tmp_path)


def check_local_and_mistakes(group: ProcessGroup, folder: Path) -> None:
    images = tiny_images(8)
    for fields in ({}, {"method": "moco", "queue_size": 16}):
        recipe = recipe_of({**RUN, "batch_norm": "local", "max_steps": 2, **fields})
        ends = train(images, recipe, None, group).network.state_dict()
        for name, value in ends.items():
            both = group.all_gather(value[None])
            assert torch.equal(both[0], both[1]), name
    with pytest.raises(UserError, match=r"batch of 9 .* 2 processes; use --batch-size 8"):
        train(images, tiny_recipe(batch_size=9), None, group)
    if group.rank == 0:
        run = RunFolder.create(folder / "damaged", tiny_recipe(), {})
        run.state_file.write_text("no checkpoint")
    own = RunFolder(folder / "damaged") if group.rank == 0 else None
    with pytest.raises(UserError, match=r"last\.pt is damaged"):
        train(images, tiny_recipe(), own, group)


def test_shares() -> None:
    class Four(ProcessGroup):
        size = 4

    assert split_batch(8, SINGLE_PROCESS, "sync") == 8
    assert split_batch(8, Four(), "sync") == 2
    with pytest.raises(UserError, match=r"batch of 3 .* 4 processes; use --batch-size 4"):
        split_batch(3, Four(), "sync")
    with pytest.raises(UserError, match=r"batch of 10 .* use --batch-size 8"):
        split_batch(10, Four(), "sync")
    with pytest.raises(UserError, match="batch_norm local"):
        split_batch(4, Four(), "local")


def test_devices() -> None:
    class Four(ProcessGroup):
        size = 4

    assert assign_device(torch.device("cpu"), Four()) == torch.device("cpu")
    assert assign_device(torch.device("cuda:1"), SINGLE_PROCESS) == torch.device("cuda:1")
    with pytest.raises(UserError, match="one process only"):
        assign_device(torch.device("mps"), Four())
    with pytest.raises(UserError, match="--device cuda"):
        assign_device(torch.device("cuda:1"), Four())


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    with join_processes() as group:
        assert group is SINGLE_PROCESS
    assert launch_id() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert launch_id() not in (None, "none")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "seven")
    assert launch_id() == "seven"
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="RANK is not set"), join_processes():
        pass


class TwoPlayers(Method):
    """A frozen network in the second stage, a second player, and something made when a stage begins."""

    Settings = CrossEntropySettings
    needs_classifier = True
    view_count = 1
    made: Tensor

    def __init__(self, network: Network, settings: Any, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        self.centres = nn.Parameter(torch.zeros(self.context.num_classes, network.feature_dim))
        self.critic = self.auxiliary(nn.Linear(network.feature_dim, 1), lr=0.01)
        self.register_buffer("made", torch.empty(0))

    def stages(self) -> tuple[Stage, ...]:
        return Stage("all", 0.5), Stage("centres", 0.5, ("centres",))

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        self.made = torch.rand(4, generator=generator)

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        z = self.embed(views.v1)
        self.critic.descend(nn.functional.softplus(self.critic(z.detach())).mean())
        ce = nn.functional.cross_entropy(self.logits(z), views.labels)
        pull = (z - self.centres[views.labels]).square().mean() * self.made.mean()
        return {"loss": ce + pull}


def two_players(group: ProcessGroup, folder: Path) -> None:
    METHODS["two-players"] = TwoPlayers
    fields = {key: value for key, value in RUN.items() if key != "layers"}
    run = None
    if group.rank == 0:
        run = RunFolder.create(folder / f"run{group.size}", tiny_recipe(**fields, method="two-players"), {})
    train(tiny_images(8), tiny_recipe(**fields, method="two-players"), run, group)


@pytest.mark.slow
def test_stages_and_second_players_are_shared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "two-players", TwoPlayers)
    two_players(SINGLE_PROCESS, tmp_path)
    in_processes(2, two_players, tmp_path)
    one, two = (end_of(RunFolder(tmp_path / f"run{size}")) for size in (1, 2))
    assert one["made"].shape == (4,)
    for name in ("made", "centres", "critic.module.weight", "network.classifier.weight"):
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-3, msg=name)
    assert one["centres"].abs().sum() > 0
