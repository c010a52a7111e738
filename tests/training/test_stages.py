"""Stages: what is frozen, what is saved, and that stopping anywhere changes nothing. Second optimisers."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import METHODS, Auxiliary, Context, Method, Stage, Views
from gradmix.models import Network
from gradmix.training import Interrupted, RunFolder, session, train
from gradmix.training.schedule import learning_rate
from gradmix.training.stages import Freezer, plan_stages
from tests.training.interrupted import assert_equal_bits, saved, stop_after, train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe


@dataclass(frozen=True)
class NoSettings:
    pass


class TwoStages(Method):
    """Classification; then, from what ``begin`` drew, a second head beside the frozen network."""

    Settings = NoSettings
    needs_classifier = True
    view_count = 1
    drawn: Tensor
    seen: ClassVar[list[tuple[str, bool, bool]]] = []  # of each step: stage, network training, z wants grad

    def __init__(self, network: Network, settings: Any, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        self.second = nn.Linear(network.feature_dim, self.context.num_classes)
        self.dropout = nn.Dropout(0.5)
        self.critic = self.auxiliary(nn.Linear(network.feature_dim, 1), lr=0.01)
        self.register_buffer("drawn", torch.empty(0))

    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage("classify", 0.5, ("network",)),
            Stage("second", 0.5, ("second", "dropout"), {"optimizer": "sgd", "lr": 0.1}, {"flip": False}),
        )

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        if stage.name == "second":
            rows = torch.randint(len(images), (5,), generator=generator)
            self.drawn = images.images[rows].float().mean((1, 2, 3)) + torch.rand(5)

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        z = self.embed(views.v1)
        self.critic.descend(F.softplus(self.critic(z.detach())).mean())
        wants = z.requires_grad
        self.seen.append((views.progress.stage, self.network.training, wants))
        if views.progress.stage == "classify":
            return {"loss": F.cross_entropy(self.logits(z), views.labels)}
        logits = self.second(self.dropout(z)) * self.drawn.mean() / 100
        return {"loss": F.cross_entropy(logits, views.labels)}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "twostages", TwoStages)
    TwoStages.seen = []


def recipe_of(**fields: Any) -> Any:
    return tiny_recipe(**{"method": "twostages", "epochs": 2, "log_every": 1, **fields})


IMAGES = tiny_images(8)  # 24 images, 3 steps per epoch, 6 steps


def test_what_a_stage_does_not_train_stands_still(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", recipe_of(), {})
    states: list[dict[str, Tensor]] = []

    def watch(trained: session.Trained, total: int) -> None:
        states.append({name: value.clone() for name, value in trained.network.state_dict().items()})
        trained.network.eval().train()  # as one does who looks at its features

    trained = train(IMAGES, recipe_of(), run, watch=watch)
    assert TwoStages.seen == [("classify", True, True)] * 3 + [("second", False, False)] * 3
    assert not torch.equal(states[1]["projection.weight"], states[2]["projection.weight"])
    for later in states[3:]:  # BatchNorm's statistics included
        assert all(torch.equal(value, later[name]) for name, value in states[2].items())
    assert all(p.requires_grad for p in trained.network.parameters())
    rows = run.history()
    assert [row["stage"] for row in rows] == ["classify"] * 3 + ["second"] * 3
    s = recipe_of().training  # each stage has a schedule of its own, from its first step to its last
    assert [row["lr"] for row in rows[:3]] == [learning_rate(i, 3, s) for i in range(3)]
    second = replace(s, optimizer="sgd", lr=0.1)
    assert [row["lr"] for row in rows[3:]] == [learning_rate(i, 3, second) for i in range(3)]


def test_each_stage_has_its_own_views(monkeypatch: pytest.MonkeyPatch) -> None:
    flips: list[bool] = []

    class NotingAugment(session.Augment):
        def __init__(self, settings: Any, *more: Any) -> None:
            super().__init__(settings, *more)
            flips.append(settings.flip)

    monkeypatch.setattr(session, "Augment", NotingAugment)
    train(IMAGES, recipe_of(flip=True))
    assert flips == [True, False]


def test_what_a_method_switches_as_a_stage_begins_is_switched_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make prototypes, say, it needs its network in some mode of its own."""

    def begin(self: TwoStages, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        self.drawn = torch.ones(1)
        self.network.requires_grad_(stage.name == "second").train(stage.name == "second")

    monkeypatch.setattr(TwoStages, "begin", begin)
    train(IMAGES, recipe_of())
    assert TwoStages.seen == [("classify", True, True)] * 3 + [("second", False, False)] * 3


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_resumed_around_the_boundary(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of()
    whole, _ = train_whole_and_stopped(IMAGES, recipe, stop, tmp_path, monkeypatch)
    assert saved(whole)["method"]["drawn"].shape == (5,)
    assert saved(whole)["method"]["critic._extra_state"]["state"]  # Adam's moments


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_killed_at_the_beginning_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(checkpoint_minutes=60.0)
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    killed = RunFolder.create(tmp_path / "killed", recipe, {})
    train(IMAGES, recipe, whole)
    take = session.learning_rate

    def die(step: int, total: int, settings: Any) -> float:
        if settings.optimizer == "sgd":
            raise Killed
        return take(step, total, settings)

    with monkeypatch.context() as patch:
        patch.setattr(session, "learning_rate", die)
        with pytest.raises(Killed):
            train(IMAGES, recipe, killed)
    state = saved(killed)
    assert (state["step"], state["stage"], state["begun"]) == (3, 1, True)  # saved when the stage began
    monkeypatch.setattr(TwoStages, "begin", lambda *_: pytest.fail("it is not done a second time"))
    train(IMAGES, recipe, killed)
    assert_equal_bits(saved(whole), saved(killed))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_a_stage_is_prepared(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first signal acts at once, and the stage before is not lost."""
    recipe = recipe_of(checkpoint_minutes=60.0)
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    train(IMAGES, recipe, whole)

    def begin(self: TwoStages, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        if stage.name == "second":
            signal.raise_signal(how)
            pytest.fail("it goes on")

    with monkeypatch.context() as patch:
        patch.setattr(TwoStages, "begin", begin)
        with pytest.raises(Interrupted, match="stopped after step 3 of 6"):
            train(IMAGES, recipe, stopped)
    assert (saved(stopped)["step"], saved(stopped)["stage"]) == (3, 0)
    train(IMAGES, recipe, stopped)
    assert_equal_bits(saved(whole), saved(stopped))


def made(**fields: Any) -> Method:
    return session.build_method(recipe_of(**fields), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("stages", "complaint"),
    [
        ((Stage("a", 1.0, ("network",)),), "parameter 'second.weight' is trained in no stage"),
        ((Stage("a", 1.0, ("netwrk",)), Stage()), "no part of the method .*'netwrk'; did you mean 'network'"),
        ((Stage("a", 0.0),), "share of the steps"),
        ((), "share of the steps"),
        ((Stage("a", settings={"lrr": 1}),), "did you mean 'lr'"),
        ((Stage("a", settings={"batch_size": 4}),), "batch_size holds for the whole training"),
        ((Stage("a", views={"image_size": 8}),), "image_size holds for the whole training"),
        ((Stage("a", settings={"lr": -1.0}),), "lr must be positive"),
    ],
)
def test_stages_that_cannot_be(
    stages: tuple[Stage, ...], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwoStages, "stages", lambda self: stages)
    method = made()
    with pytest.raises(UserError, match=complaint):
        Freezer(method, plan_stages(method, recipe_of(), 6))


@pytest.mark.parametrize(("total", "ends"), [(8, [2, 8]), (6, [2, 6]), (1, [0, 1])])
def test_shares_are_of_their_sum(total: int, ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoStages, "stages", lambda self: (Stage("a", 1.0), Stage("b", 3.0)))
    planned = plan_stages(made(), recipe_of(), total)
    assert [stage.end for stage in planned] == ends
    assert [stage.start for stage in planned] == [0, ends[0]]


def test_a_stage_trains_what_it_names_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = (Stage("a", 1.0, ("second",)), Stage("b"))
    monkeypatch.setattr(TwoStages, "stages", lambda self: stages)
    method = made()
    method.second_head = nn.Linear(2, 2)  # not a part of "second"
    for parameter in method.parameters():
        parameter.grad = torch.ones_like(parameter)
    freezer = Freezer(method, plan_stages(method, recipe_of(), 6))
    trained = freezer.enter(stages[0])
    assert {id(p) for p in trained} == {id(p) for p in method.second.parameters()}
    assert [name for name, p in method.named_parameters() if p.requires_grad and "critic" not in name] == [
        "second.weight",
        "second.bias",
    ]
    assert not method.second_head.training
    assert all(p.grad is None for name, p in method.named_parameters() if "critic" not in name)


def test_what_is_computed_from_parameters_needs_no_optimiser() -> None:
    method = made()
    method.scaled = 2 * method.second.weight  # kept from a step, for a picture
    Freezer(method, plan_stages(method, recipe_of(), 6))


@pytest.mark.parametrize("how", ["list", "dict", "tuple", "set", "tensor", "module", "in a submodule"])
def test_what_nobody_would_train_is_found_before_the_first_step(how: str) -> None:
    method, lost = made(), nn.Parameter(torch.zeros(3))
    hidden: dict[str, Any] = {
        "list": [lost],
        "dict": {"a": [{"b": lost}]},
        "tuple": (1, (lost,)),
        "set": {lost},
        "tensor": torch.zeros(3, requires_grad=True),
        "module": [nn.Linear(2, 2)],
        "in a submodule": [lost],
    }
    (method.network if how == "in a submodule" else method).extra = hidden[how]  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"extra.* wants a gradient but no optimiser trains it; assign it to"):
        Freezer(method, plan_stages(method, recipe_of(), 6))
    kept = [lost, *(hidden[how] if how == "module" else [])]
    for thing in kept:
        thing.requires_grad_(False)
    if how != "tensor":
        Freezer(method, plan_stages(method, recipe_of(), 6))


def test_a_teacher_that_the_method_put_to_rest_stays_so() -> None:
    method = made()
    method.teacher = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False).eval()
    planned = plan_stages(method, recipe_of(), 6)
    freezer = Freezer(method, planned)
    for stage in (*(one.stage for one in planned), Stage("all of it"), Stage("", 1.0, ("teacher", "second"))):
        freezer.enter(stage)
        assert not any(module.training for module in method.teacher.modules())
    assert method.second.training


@pytest.mark.parametrize(("field", "value"), [("precision", "fp16"), ("compile", True)])
def test_a_second_optimiser_is_refused_with(field: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{field}.*second optimiser"):
        session.check_auxiliaries(made(), recipe_of(**{field: value}).training)


def test_descending_leaves_no_gradient_elsewhere() -> None:
    from gradmix.distributed import SINGLE_PROCESS

    encoder, critic = nn.Linear(4, 2), Auxiliary(nn.Linear(2, 1), 0.1, (0.5, 0.9), SINGLE_PROCESS)
    reference = nn.Linear(2, 1)
    reference.load_state_dict(critic.module.state_dict())
    optimizer = torch.optim.Adam(reference.parameters(), 0.1, (0.5, 0.9))
    for _ in range(3):
        x = torch.randn(8, 4)
        critic.descend(critic(encoder(x)).square().mean())
        optimizer.zero_grad()
        reference(encoder(x).detach()).square().mean().backward()
        optimizer.step()
    assert all(p.grad is None for p in (*encoder.parameters(), *critic.parameters()))
    for ours, theirs in zip(critic.module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


class Dropping(TwoStages):
    """Dropout in an ordinary training."""

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(),)

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        self.drawn = torch.full((1,), 100.0)

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(self.second(self.dropout(self.embed(views.v1))), views.labels)}


def test_dropout_is_a_function_of_seed_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "twostages", Dropping)
    recipe = recipe_of()
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, 6 + 4)
    before = torch.get_rng_state()
    train(IMAGES, recipe, whole)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(Interrupted):
        train(IMAGES, recipe, stopped)
    torch.manual_seed(5)
    train(IMAGES, recipe, stopped)
    assert_equal_bits(saved(whole), saved(stopped))
