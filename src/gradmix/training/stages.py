"""The stages of a training: which steps, with which settings, and what is trained in each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from ..errors import UserError, choose
from ..methods import Auxiliary, Method, Stage
from ..models import StagedEncoder
from ..recipe import Recipe, TrainingSettings
from ..views import ViewSettings

# A stage cannot change what holds for the whole training.
_FIXED = {
    *("epochs", "max_steps", "batch_size", "seed", "device", "precision", "compile", "limit_per_class"),
    *("batch_norm", "log_every", "checkpoint_minutes", "image_size", "channels", "normalize"),
}


@dataclass(frozen=True)
class PlannedStage:
    """Steps ``start`` ≤ step < ``end`` of the training, and the recipe's settings as the stage wants them."""

    number: int
    stage: Stage
    start: int
    end: int
    settings: TrainingSettings
    views: ViewSettings


def plan_stages(method: Method, recipe: Recipe, total: int) -> list[PlannedStage]:
    """Share ``total`` steps among the method's stages; raise UserError for a plan that cannot be."""
    stages = method.stages()
    who = f"method {recipe.method}"
    if not stages or not all(stage.share > 0 for stage in stages):
        raise UserError(f"{who}: every stage needs a share of the steps that is positive")
    whole = sum(stage.share for stage in stages)
    planned: list[PlannedStage] = []
    until, start = 0.0, 0
    for number, stage in enumerate(stages):
        until += stage.share
        end = total if number == len(stages) - 1 else round(total * until / whole)
        where = f"{who}, stage '{stage.name}'"
        settings = _override(recipe.training, stage.settings, where)
        planned.append(
            PlannedStage(number, stage, start, end, settings, _override(recipe.views, stage.views, where))
        )
        start = end
    return planned


class Freezer:
    """Turns the parts of a method on and off from stage to stage."""

    def __init__(self, method: Method, stages: Sequence[PlannedStage]) -> None:
        """Raise UserError for a parameter that nobody would train."""
        self.method = method
        self.resting = [m for m in method.modules() if not m.training]  # a teacher, say: the method put it so
        self.auxiliary = [p for m in method.modules() if isinstance(m, Auxiliary) for p in m.parameters()]
        others = {id(p) for p in self.auxiliary}
        self.trainable = {
            name: p for name, p in method.named_parameters() if p.requires_grad and id(p) not in others
        }
        _check_names(method, stages)
        _check_all_trained(method, self.trainable, self.auxiliary, [s.stage for s in stages])

    def enter(self, stage: Stage) -> list[nn.Parameter]:
        """Freeze what the stage does not train: no gradient, and eval() so that BatchNorm does not drift."""
        trained: list[nn.Parameter] = []
        for name, parameter in self.trainable.items():
            on = _covers(stage, name)
            parameter.requires_grad_(on)
            parameter.grad = None
            trained += [parameter] if on else []
        self.set_modes(stage)
        return trained

    def set_modes(self, stage: Stage) -> None:
        """Put what the stage trains into training mode, and the rest into eval mode."""
        self.method.train()
        if stage.trains is not None:
            kept = {id(m) for a in self.method.modules() if isinstance(a, Auxiliary) for m in a.modules()}
            for name, module in self.method.named_modules():
                above = any(part.startswith(f"{name}.") for part in stage.trains) or not name
                if id(module) not in kept:
                    module.training = above or _covers(stage, name)
        for module in self.resting:
            module.training = False

    def leave(self) -> None:
        """Make everything trainable again that was so before, and the network: any layer may be explained."""
        for parameter in [*self.trainable.values(), *self.method.network.parameters()]:
            parameter.requires_grad_(True)


def freeze_encoder(method: Method, until: str) -> None:
    """Freeze the encoder up to a layer; raise UserError where that cannot be, or where maps are wanted."""
    encoder = method.network.encoder
    if not isinstance(encoder, StagedEncoder):
        raise UserError(f"freeze: {type(encoder).__name__} has no named layers; leave it out")
    encoder.freeze_until(until)
    mixer, wanted = getattr(method, "mixer", None), getattr(method.settings, "layers", ())
    names = list(encoder.layer_names)
    frozen = [layer for layer in wanted if layer in names[: names.index(until) + 1]]
    if frozen and mixer is not None and mixer.needs_maps:
        raise UserError(
            f"layers: no gradient comes back to {frozen[0]}, for freeze is {until}; give later layers"
        )


def _covers(stage: Stage, name: str) -> bool:
    """Return whether the stage trains the parameter or module called ``name``."""
    return stage.trains is None or any(name == part or name.startswith(f"{part}.") for part in stage.trains)


_S = TypeVar("_S", TrainingSettings, ViewSettings)


def _override(settings: _S, fields: Mapping[str, Any], where: str) -> _S:
    for name in fields:
        choose(f"setting ({where})", name, [f.name for f in dataclasses.fields(settings)])
        if name in _FIXED:
            raise UserError(f"{where}: {name} holds for the whole training, not for one stage")
    return dataclasses.replace(settings, **fields)


def _check_names(method: Method, stages: Sequence[PlannedStage]) -> None:
    parts = [name for name, _ in method.named_modules() if name] + [n for n, _ in method.named_parameters()]
    for planned in stages:
        for name in planned.stage.trains or ():
            choose(f"part of the method (stage '{planned.stage.name}')", name, parts)


def _check_all_trained(
    method: Method,
    trainable: Mapping[str, nn.Parameter],
    auxiliary: Sequence[Tensor],
    stages: Sequence[Stage],
) -> None:
    """Raise UserError naming the first trainable parameter that no optimizer would hold."""
    who = type(method).__name__
    for name in trainable:
        if not any(_covers(stage, name) for stage in stages):
            raise UserError(
                f"{who}: parameter '{name}' is trained in no stage; name it in a stage's trains, or give it "
                "requires_grad_(False)"
            )
    held = {id(p) for p in trainable.values()} | {id(p) for p in auxiliary}
    for path, module in method.named_modules():
        if isinstance(module, Auxiliary):
            continue
        for name, value in vars(module).items():
            if name.startswith("_") and name in _OF_TORCH:
                continue
            for where, tensor in _tensors_in(value, f"{path}.{name}" if path else name, set()):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in held:
                    raise UserError(
                        f"{who}: '{where}' wants a gradient but no optimiser trains it; assign it to the "
                        "method itself as an nn.Parameter or a module (lists: nn.ParameterList, "
                        "nn.ModuleList), or give it requires_grad_(False)"
                    )


_OF_TORCH = set(vars(nn.Module()))  # torch's own tables of parameters, buffers, modules and hooks


def _tensors_in(value: Any, where: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) of all tensors in plain containers and unregistered modules."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield where, value
    elif isinstance(value, nn.Module):
        for name, parameter in value.named_parameters():
            yield f"{where}.{name}", parameter
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors_in(item, f"{where}[{key!r}]", seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for i, item in enumerate(value):
            yield from _tensors_in(item, f"{where}[{i}]", seen)
