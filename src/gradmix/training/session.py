"""Training, in one function that can be read in one sitting."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import ImageSet
from ..errors import UserError, first_line
from ..methods import METHODS, Method, Views
from ..models import Network, build_encoder
from ..models.batch_norm import average_statistics, synchronize
from ..progress import progress
from ..views import Augment, Normalizer
from ..world import ALONE, World
from .board import Board
from .clock import Clock
from .distributed import own_device, own_share, state_of_first
from .hardware import check_compile, check_precision, embedder, pick_device
from .recipe import Recipe
from .run_folder import RunFolder
from .schedule import learning_rate, make_optimizer, set_learning_rate
from .seeds import generator_for
from .stop import stop_requests


class Interrupted(Exception):
    """The user stopped the run; its state is saved."""

    def __init__(self, step: int, total: int) -> None:
        super().__init__(f"stopped after step {step} of {total}")
        self.step, self.total = step, total


@dataclass(frozen=True)
class Trained:
    """The network with its input normalisation, and how long it took."""

    network: Network
    normalizer: Normalizer
    steps: int
    minutes: float
    core_minutes: float = 0.0


Watch = Callable[[Trained, int], None]  # what there is after a step, and how many steps there will be


def train(
    images: ImageSet,
    recipe: Recipe,
    run: RunFolder | None = None,
    world: World = ALONE,
    watch: Watch | None = None,
) -> Trained:
    """Train on ``images``; with a run folder, log there, save there, and go on from what is saved there.

    ``watch`` is called after every step, for curves; its time is not counted.

    The weights depend on recipe and images alone: stopping and resuming any number of times ends in the
    same bytes as not stopping (same machine, same number of threads). With several processes each works
    on its rows of every batch, to the same weights but for rounding; only rank 0's run folder is used.
    """
    run = run if world.rank == 0 else None
    with ExitStack() as until_the_end:
        with world.together():
            if run:
                until_the_end.enter_context(run.trained_by_us())
        return _train(images, recipe, run, world, watch)


def _train(
    images: ImageSet, recipe: Recipe, run: RunFolder | None, world: World, watch: Watch | None
) -> Trained:
    s = recipe.training
    device = own_device(pick_device(s.device), world)
    check_precision(s.precision, device)
    if s.compile:
        check_compile(device, world.size)
    with world.together():  # published weights may be missing on one machine
        network = build_network(recipe, len(images.class_names)).to(device)
    if s.batch_norm == "sync":
        synchronize(network, world)
    kind = METHODS[recipe.method]
    method = kind(
        network,
        recipe.objective,
        embedder=functools.partial(embedder, device=device, precision=s.precision, compiled=s.compile),
        generator=generator_for(s.seed, "method"),
        world=world,
    )
    normalizer = Normalizer.fit(images.images, recipe.views.normalize)
    augment = Augment(recipe.views, normalizer, world)
    optimizer = make_optimizer(network, s)
    scaler = torch.amp.GradScaler(device.type, enabled=s.precision == "fp16")
    scaler.scale(torch.zeros((), device=device))  # its first call makes its state; steps scale by themselves

    batch_size = min(s.batch_size, len(images))
    own_share(batch_size, world, s.batch_norm)  # refuses what cannot be shared
    steps_per_epoch = len(images) // batch_size
    total = min(s.epochs * steps_per_epoch, s.max_steps or s.epochs * steps_per_epoch)
    pending = _Sums()
    step, clock = 0, Clock()
    last_save = time.monotonic()

    def trained() -> Trained:
        return Trained(network, normalizer, step, clock.minutes, clock.core_minutes)

    def state_now() -> dict[str, Any]:
        return {
            "step": step,
            "minutes": clock.minutes,
            "core_minutes": clock.core_minutes,
            "network": network.state_dict(),
            "method": method.state(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
            "pending": pending.sums,
            "pending_count": pending.count,
        }

    def save() -> None:
        average_statistics(network, world)
        with world.together():
            if run:
                run.save_state(state_now())

    if run:
        run.remove_unfinished_files()
    state = state_of_first(run, state_now, world)
    if state:
        step, pending = _restore(state, network, method, optimizer, scaler, run)
        clock.go_on_from(float(state["minutes"]), float(state.get("core_minutes", 0.0)))
    if run:
        run.rewind_history(step)

    network.train()
    with stop_requests() as asked_to_stop, progress("training", total) as advance, Board(run, step) as board:
        advance(step)
        for index in _batches(len(images), batch_size, s.seed, step, total):
            lr = learning_rate(step, total, s)
            set_learning_rate(optimizer, lr)
            generator = generator_for(s.seed, "step", step)
            picked = images.images[index[world.rows(batch_size)]].to(device)
            size = recipe.views.size_at(step / total)
            v1 = channels_last(augment(picked, generator, size))
            v2 = channels_last(augment(picked, generator, size)) if kind.view_count == 2 else v1
            optimizer.zero_grad()
            losses = method.step(
                Views(v1, v2, images.labels[index].to(device)), generator, scaler.get_scale()
            )
            values = {name: float(value) for name, value in losses.items()}
            if not math.isfinite(values["loss"]):
                raise _diverged(values["loss"], step, index, run)
            world.add_up([p.grad for p in network.parameters() if p.grad is not None])
            if s.clip_norm is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(network.parameters(), s.clip_norm)
            scaler.step(optimizer)
            scaler.update()
            step += 1

            pending.add(values)
            if step % s.log_every == 0 or step == total:
                row = pending.take() | {
                    "lr": lr,
                    "epoch": step / steps_per_epoch,
                    "minutes": round(clock.minutes, 3),
                }
                board.log(step, row)
            advance(1, note=f"loss {values['loss']:.3f}")
            if watch:
                with clock.stopped():
                    watch(trained(), total)
            due = step == total or time.monotonic() - last_save > 60 * s.checkpoint_minutes
            stopping, due = world.any(asked_to_stop(), due)
            if stopping:
                save()
                raise Interrupted(step, total)
            if due:
                save()
                last_save = time.monotonic()
    network.eval()
    return trained()


def build_network(recipe: Recipe, num_classes: int) -> Network:
    """The untrained network of a recipe, its weights drawn from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_for(recipe.training.seed, "weights").initial_seed())
        encoder = build_encoder(recipe.model, recipe.views.image_size, recipe.views.channels)
        dim = encoder.dim
        assert isinstance(dim, int)
        method, model = METHODS[recipe.method], recipe.model
        classes = num_classes if method.needs_classifier else 0
        network = Network(
            encoder, dim, model.feature_dim, model.projection, classes, unit_features=method.unit_features
        )
    # Faster; and here, for a loaded network must have it too: convolutions round differently without.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _batches(n: int, batch_size: int, seed: int, step: int, total: int) -> Iterator[Tensor]:
    """Indices of the batches from ``step`` on: each epoch a new order, its last incomplete batch dropped."""
    steps_per_epoch = n // batch_size
    order, order_of = torch.empty(0), -1
    for number in range(step, total):
        epoch, place = divmod(number, steps_per_epoch)
        if epoch != order_of:
            order, order_of = torch.randperm(n, generator=generator_for(seed, "epoch", epoch)), epoch
        yield order[place * batch_size : (place + 1) * batch_size]


def _restore(
    state: dict[str, Any],
    network: Network,
    method: Method,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    run: RunFolder | None,
) -> tuple[int, _Sums]:
    """Put the saved state back; returns (step, losses since the last row)."""
    try:
        network.load_state_dict(state["network"])
        method.load_state(state.get("method", {}))  # earlier versions saved none: no method had any
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        pending = _Sums(dict(state["pending"]), int(state["pending_count"]))
        return int(state["step"]), pending
    except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        file = run.state_file if run else "the saved state"
        raise UserError(f"{file} does not belong to this run's recipe: {first_line(error)}") from error


def _diverged(loss: float, step: int, index: Tensor, run: RunFolder | None) -> UserError:
    batch = ", ".join(str(i) for i in index[:5].tolist())
    kept = f"; the last good state is kept in {run.state_file}" if run and run.state_file.exists() else ""
    return UserError(
        f"the loss became {loss} at step {step} (batch of training images {batch}, …): lower --lr or raise "
        f"the temperatures{kept}"
    )


def channels_last(images: Tensor) -> Tensor:
    """Convolutions are faster so, on the CPUs tried."""
    return images.contiguous(memory_format=torch.channels_last)


class _Sums:
    """Means of the losses since the last row of the history; part of the saved state."""

    def __init__(self, sums: dict[str, float] | None = None, count: int = 0) -> None:
        self.sums, self.count = sums or {}, count

    def add(self, values: dict[str, float]) -> None:
        self.sums = {name: self.sums.get(name, 0.0) + value for name, value in values.items()}
        self.count += 1

    def take(self) -> dict[str, float]:
        means = {name: total / self.count for name, total in self.sums.items()}
        self.sums, self.count = {}, 0
        return means
