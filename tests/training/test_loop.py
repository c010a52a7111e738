"""What the loop hands to a method at each step, and what it does with what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.distributed import ProcessGroup
from gradmix.methods import METHODS, Method, Views
from gradmix.training import Recipe, RunFolder, Trained, session, train
from gradmix.training import clock as clock_module
from gradmix.training.checkpoint import TrainingState
from gradmix.training.stages import plan_stages
from tests.training.test_clock import Turned
from tests.training.tiny import tiny_images, tiny_recipe


@dataclass(frozen=True)
class NoSettings:
    pass


class Noting(Method):
    """Classification of the first view; the loss that is told is the number of the step."""

    Settings = NoSettings
    needs_classifier = True
    seen: ClassVar[list[Views]] = []
    stale: ClassVar[list[bool]] = []  # of each step: whether gradients of the step before were left

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        self.seen.append(views)
        self.stale.append(any(p.grad is not None and bool(p.grad.any()) for p in self.parameters()))
        loss = F.cross_entropy(self.logits(self.embed(views.v1)), views.labels)
        return {"loss": loss - loss.detach() + views.progress.step}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # TensorBoard is slow to import
    monkeypatch.setitem(METHODS, "noting", Noting)
    Noting.seen, Noting.stale = [], []


def recipe_of(**fields: Any) -> Recipe:
    return tiny_recipe(**{"method": "noting", **fields})


IMAGES = tiny_images(8)  # 24 images, 3 steps per epoch, 6 steps


def test_what_a_method_sees() -> None:
    train(IMAGES, recipe_of(flip=True))
    assert [views.progress.step for views in Noting.seen] == [0, 1, 2, 3, 4, 5]
    assert [views.progress.epoch for views in Noting.seen] == [0, 0, 0, 1, 1, 1]
    assert {views.progress.total for views in Noting.seen} == {6}
    assert not any(torch.equal(views.v1, views.v2) for views in Noting.seen)
    assert not any(Noting.stale)


def test_labels_are_those_of_the_images_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Tensor] = []
    apply = session.Augment.apply

    def noting(self: session.Augment, images: Tensor, *how: Any) -> Tensor:
        given.append(images)
        return apply(self, images, *how)

    monkeypatch.setattr(session.Augment, "apply", noting)
    train(IMAGES, recipe_of())
    label_of = {
        image.numpy().tobytes(): int(label)
        for image, label in zip(IMAGES.images[:], IMAGES.labels, strict=True)
    }
    for images, views in zip(given[::2], Noting.seen, strict=True):
        assert [label_of[image.numpy().tobytes()] for image in images] == views.labels.tolist()


def test_each_step_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[float] = []
    draw = session.Augment.draw

    def noting(self: session.Augment, n: int, generator: torch.Generator) -> Any:
        numbers.append(generator.initial_seed())
        return draw(self, n, generator)

    monkeypatch.setattr(session.Augment, "draw", noting)
    train(IMAGES, recipe_of())
    assert len(numbers) == 12  # two views of six batches
    assert len(set(numbers)) == 6


def test_the_optimizer_steps_by_the_averaged_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mean over the processes is zero, nothing moves."""

    def average(parameters: list[nn.Parameter], group: ProcessGroup) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.zero_()

    recipe = recipe_of(optimizer="sgd", weight_decay=0.0, max_steps=2)
    before = session.build_network(recipe, 3)
    monkeypatch.setattr(session, "average_gradients", average)
    after = train(IMAGES, recipe).network
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(old, new)


def test_a_row_is_the_mean_since_the_row_before(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", recipe_of(log_every=4), {})
    train(IMAGES, run.recipe(), run)
    rows = [(row["step"], row["loss"]) for row in run.history()]
    assert rows == [(4, 1.5), (6, 4.5)]  # steps 0 … 3, and the rest at the end


def test_a_state_is_saved_once_in_so_many_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        """40 seconds for each step."""

        @staticmethod
        def monotonic() -> float:
            return 40.0 * len(Noting.seen)

    saved: list[int] = []
    save = RunFolder.save_state

    def noting(self: RunFolder, state: Mapping[str, Any]) -> None:
        saved.append(state["step"])
        save(self, dict(state))

    monkeypatch.setattr(session, "time", Time)
    monkeypatch.setattr(RunFolder, "save_state", noting)
    run = RunFolder.create(tmp_path / "run", recipe_of(checkpoint_minutes=1.0, epochs=3), {})
    train(IMAGES, run.recipe(), run)
    assert saved == [2, 4, 6, 8, 9]


def test_watching_takes_no_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = Turned()
    monkeypatch.setattr(clock_module, "time", turned)

    def watch(trained: Trained, total: int) -> None:
        turned.pass_by(wall=600, cores=600)

    trained = train(IMAGES, recipe_of(max_steps=2), watch=watch)
    assert (trained.minutes, trained.core_minutes) == (0, 0)


def test_all_of_a_state_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "time", Turned())

    def fresh() -> TrainingState:
        method = session.build_method(recipe_of(), ("a", "b", "c"))
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.zeros(()))
        return TrainingState(method, plan_stages(method, recipe_of(), 6), scaler)

    state = fresh()
    state.scaler.update(128.0)
    state.step = 5
    state.clock.resume_from(7.0, 9.0)
    state.pending.add({"loss": 2.0})
    other = fresh()
    other.begun = True
    other.restore(state.to_dict(), "the file")
    assert other.scaler.get_scale() == 128.0
    assert (other.step, other.begun) == (5, False)
    assert (other.clock.minutes, other.clock.core_minutes) == (7.0, 9.0)
    assert (other.pending.sums, other.pending.count) == ({"loss": 2.0}, 1)
