"""Training, in one function."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..data import ImageSet
from ..distributed import SINGLE_PROCESS, ProcessGroup, assign_device, split_batch
from ..distributed.batch_norm import average_statistics, synchronize
from ..distributed.gradients import average_gradients
from ..errors import UserError
from ..machine import reuse_freed_memory
from ..methods import METHODS, Auxiliary, Context, Method, Progress, Views
from ..models import Domain, Network, NetworkSpec
from ..models.hub_tower import describe_tower
from ..models.tower_files import is_tower
from ..progress import progress
from ..recipe import Recipe, TrainingSettings
from ..views import Augment, Normalizer
from .checkpoint import TrainingState, broadcast_state, load_start_state, resize_empty_buffers
from .fit_normalizer import fit_normalizer
from .hardware import check_compile, check_precision, make_embedder, pick_device
from .history_writer import HistoryWriter
from .run_folder import RunFolder
from .schedule import learning_rate, set_learning_rate
from .seeds import generator_for
from .stages import freeze_encoder, plan_stages
from .stop import stop_at_once, stop_requests


class Interrupted(Exception):
    """The user stopped the run; its state is saved."""

    def __init__(self, step: int, total: int) -> None:
        super().__init__(f"stopped after step {step} of {total}")
        self.step, self.total = step, total


@dataclass(frozen=True)
class Trained:
    """The network with its input normalization, and how long it took."""

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
    group: ProcessGroup = SINGLE_PROCESS,
    watch: Watch | None = None,
) -> Trained:
    """Train on ``images``; with a run folder, log there, save there, and go on from what is saved there.

    ``watch`` is called after every step, for curves; its time is not counted.

    The weights depend on recipe and images alone: stopping and resuming any number of times ends in the
    same bytes as not stopping (same machine, same number of threads). With several processes each works
    on its rows of every batch, to the same weights but for rounding; only rank 0's run folder is used.
    """
    run = run if group.rank == 0 else None
    with ExitStack() as stack:
        with group.raise_together():
            if run:
                stack.enter_context(run.exclusive())
        return _train(images, recipe, run, group, watch)


def _train(
    images: ImageSet, recipe: Recipe, run: RunFolder | None, group: ProcessGroup, watch: Watch | None
) -> Trained:
    s = recipe.training
    if not METHODS[recipe.method].needs_training:
        raise UserError(
            f"method {recipe.method} trains nothing; give its images to gradmix.fit, or choose another method"
        )
    device = assign_device(pick_device(s.device), group)
    check_precision(s.precision, device)
    if s.compile:
        check_compile(device, group.size)
    with group.raise_together():
        normalizer = fit_normalizer(images, recipe)
    with group.raise_together():  # published weights may be missing on one machine
        method = build_method(recipe, images.class_names, normalizer, device, group)
        method.check_images(images)
    network = method.network
    check_auxiliaries(method, s)
    scaler = torch.amp.GradScaler(device.type, enabled=s.precision == "fp16")
    scaler.scale(torch.zeros((), device=device))  # its first call makes its state; steps scale by themselves

    batch_size = min(s.batch_size, len(images))
    split_batch(batch_size, group, s.batch_norm)  # refuses what cannot be shared
    own_rows = group.rows(batch_size)
    steps_per_epoch = len(images) // batch_size
    total = min(s.epochs * steps_per_epoch, s.max_steps or s.epochs * steps_per_epoch)
    stages = plan_stages(method, recipe, total)
    state = TrainingState(method, stages, scaler)
    clock = state.clock
    last_save = time.monotonic()

    def snapshot() -> Trained:
        method.update_network()
        return Trained(network, normalizer, state.step, clock.minutes, clock.core_minutes)

    def save() -> None:
        average_statistics(method, group)
        with group.raise_together():
            if run:
                run.save_state(state.to_dict())

    if run:
        run.remove_unfinished_files()
    saved = load_start_state(run, state.to_dict, group)
    if saved:
        state.restore(saved, run.state_file if run else "the saved state")
    if run:
        run.rewind_history(state.step)

    with ExitStack() as stack:
        stack.callback(state.freezer.leave)
        stack.enter_context(preserve_global_generator(device))
        stack.enter_context(reuse_freed_memory())
        asked_to_stop = stack.enter_context(stop_requests())
        advance = stack.enter_context(progress("training", total))
        history = stack.enter_context(HistoryWriter(run, state.step))
        advance(state.step)
        for number in range(state.number, len(stages)):
            if number > state.number:
                if prepares_stages(method):
                    save()  # it may take minutes, and be stopped
                state.enter(number)
            stage, steps = state.stage, state.stage.end - state.stage.start
            if not state.begun:
                try:
                    with stop_at_once():
                        begin_stage(state, images, s.seed, group)
                except KeyboardInterrupt:
                    raise Interrupted(state.step, total) from None
                if number:
                    save()
            augment = Augment(stage.views, normalizer)
            for index in _batches(len(images), batch_size, s.seed, state.step, stage.end):
                step = state.step
                lr = learning_rate(step - stage.start, steps, stage.settings)
                set_learning_rate(state.optimizer, lr)
                generator = generator_for(s.seed, "step", step)
                seed_global_generator(s.seed, step, group, device)
                own_images = images.images[index[own_rows]].to(device)
                size = stage.views.size_at(step / total)
                v1 = channels_last(
                    augment.apply(own_images, augment.draw(batch_size, generator)[own_rows], size)
                )
                v2 = v1
                if method.view_count == 2:
                    v2 = channels_last(
                        augment.apply(own_images, augment.draw(batch_size, generator)[own_rows], size)
                    )
                now = Progress(step, total, step // steps_per_epoch, stage.stage.name)
                state.optimizer.zero_grad()
                losses = method.step(
                    Views(v1, v2, images.labels[index].to(device), now), generator, scaler.get_scale()
                )
                values = {name: float(value) for name, value in losses.items()}
                if not math.isfinite(values["loss"]):
                    raise _divergence_error(values["loss"], step, index, run)
                average_gradients(state.parameters, group)
                if stage.settings.clip_norm is not None:
                    scaler.unscale_(state.optimizer)
                    torch.nn.utils.clip_grad_norm_(state.parameters, stage.settings.clip_norm)
                scaler.step(state.optimizer)
                scaler.update()
                state.step = step = step + 1

                state.pending.add(values)
                if step % s.log_every == 0 or step == stage.end:
                    row: dict[str, float | str] = {**state.pending.take(), "lr": lr}
                    row |= {"epoch": step / steps_per_epoch, "minutes": round(clock.minutes, 3)}
                    history.log(step, row | ({"stage": stage.stage.name} if len(stages) > 1 else {}))
                advance(1, note=f"loss {values['loss']:.3f}")
                if watch:
                    with clock.pause():
                        watch(snapshot(), total)
                    state.freezer.set_modes(stage.stage)  # whoever looks at the network may switch it
                due = step == total or time.monotonic() - last_save > 60 * s.checkpoint_minutes
                stopping, due = group.any(asked_to_stop(), due)
                if stopping:
                    save()
                    raise Interrupted(step, total)
                if due:
                    save()
                    last_save = time.monotonic()
    network.eval()
    return snapshot()


def build_method(
    recipe: Recipe,
    class_names: Sequence[str],
    normalizer: Normalizer | None = None,
    device: torch.device | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Method:
    """Build the untrained method of a recipe with its network, all drawn from the recipe's seed."""
    s, device = recipe.training, device or torch.device("cpu")
    network = build_network(recipe, len(class_names)).to(device)
    if s.batch_norm == "sync":
        synchronize(network, group)
    generator = generator_for(s.seed, "method")
    call = functools.partial(make_embedder, device=device, precision=s.precision, compiled=s.compile)
    context = Context(
        len(class_names),
        generator,
        normalizer,
        group,
        call,
        tuple(class_names),
        recipe.views.channels,
        recipe.views.image_size,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())  # for initial values drawn without the generator
        method = METHODS[recipe.method](network, recipe.objective, context)
    if s.batch_norm == "sync":
        synchronize(method, group)
    if recipe.model.freeze:
        freeze_encoder(method, recipe.model.freeze)
    return method.to(device)


def prepares_stages(method: Method) -> bool:
    """Return whether the method has work to do between its stages."""
    return type(method).begin is not Method.begin


def begin_stage(state: TrainingState, images: ImageSet, seed: int, group: ProcessGroup) -> None:
    """Let the method prepare a stage; all processes go on with what the first has made."""
    method, stage = state.method, state.stage
    if prepares_stages(method):
        generator = generator_for(seed, "stage", stage.number)
        torch.manual_seed(generator.initial_seed())
        method.begin(stage.stage, images, generator)
        if group.size > 1:
            made = broadcast_state(method.state_dict, group)
            resize_empty_buffers(method, made)
            method.load_state_dict(made)
        state.freezer.enter(stage.stage)  # whatever the method has switched meanwhile
    state.begun = True


@contextmanager
def preserve_global_generator(device: torch.device) -> Iterator[None]:
    """Give torch's global generators back at the end of the block as they were."""
    cuda = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        yield


def seed_global_generator(seed: int, step: int, group: ProcessGroup, device: torch.device) -> None:
    """Make dropout, and whatever else takes no generator, a function of (seed, step), and of the rank.

    With several processes the numbers differ between them, and from those of one process.
    """
    purpose = "global" if group.size == 1 else f"global {group.rank} of {group.size}"
    number = generator_for(seed, purpose, step).initial_seed()
    torch.default_generator.manual_seed(number)  # torch.manual_seed asks all kinds of devices: 0.2 ms
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)


def check_auxiliaries(method: Method, settings: TrainingSettings) -> None:
    """Refuse what a second optimizer, or a second set of BatchNorm statistics, does not go with."""
    if settings.compile and any(isinstance(module, Domain) for module in method.modules()):
        raise UserError("compile: a second set of BatchNorm statistics is not compiled; leave it out")
    if not any(isinstance(module, Auxiliary) for module in method.modules()):
        return
    if settings.precision == "fp16":
        raise UserError(
            "precision fp16: this method has a second optimiser, which has no loss scaling; use bf16"
        )
    if settings.compile:
        raise UserError("compile: this method has a second optimiser, and is not compiled; leave it out")


def describe_network(recipe: Recipe, num_classes: int) -> NetworkSpec:
    """Return the network of a recipe as plain values."""
    model, views = recipe.model, recipe.views
    plain = NetworkSpec(
        model.encoder, model.stem, views.channels, views.image_size, model.projection, model.feature_dim
    )
    kind = METHODS[recipe.method]
    if is_tower(model.encoder):
        if not kind.takes_towers:
            raise UserError(f"method {recipe.method} does not train {model.encoder}: use recipe frozen")
        plain = replace(plain, body=describe_tower(model.encoder))
    return kind.describe_network(plain, recipe.objective, model, num_classes)


def build_network(recipe: Recipe, num_classes: int) -> Network:
    """Build the untrained network of a recipe, its weights drawn from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_for(recipe.training.seed, "weights").initial_seed())
        return describe_network(recipe, num_classes).build(recipe.model.init, recipe.model.init_head)


def _batches(n: int, batch_size: int, seed: int, step: int, total: int) -> Iterator[Tensor]:
    """Yield the indices of each batch from ``step`` on: a new order per epoch, no incomplete ones."""
    steps_per_epoch = n // batch_size
    order, order_of = torch.empty(0), -1
    for number in range(step, total):
        epoch, batch = divmod(number, steps_per_epoch)
        if epoch != order_of:
            order, order_of = torch.randperm(n, generator=generator_for(seed, "epoch", epoch)), epoch
        yield order[batch * batch_size : (batch + 1) * batch_size]


def _divergence_error(loss: float, step: int, index: Tensor, run: RunFolder | None) -> UserError:
    batch = ", ".join(str(i) for i in index[:5].tolist())
    kept = f"; the last good state is kept in {run.state_file}" if run and run.state_file.exists() else ""
    return UserError(
        f"the loss became {loss} at step {step} (batch of training images {batch}, …): lower --lr or raise "
        f"the temperatures{kept}"
    )


def channels_last(images: Tensor) -> Tensor:
    """Return the images in the memory format in which convolutions are faster, on the CPUs tried."""
    return images.contiguous(memory_format=torch.channels_last)
