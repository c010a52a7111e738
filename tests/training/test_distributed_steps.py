"""One step on a batch that processes share: losses and gradients are those of one, for every method."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmix.data import ImageSet
from gradmix.distributed import SINGLE_PROCESS, ProcessGroup
from gradmix.distributed.batch_norm import synchronize
from gradmix.distributed.gradients import average_gradients
from gradmix.methods import METHODS, Context, MoCo, Progress, Stage, Views
from gradmix.training import session
from gradmix.training.seeds import generator_for
from gradmix.training.session import build_network
from gradmix.training.stages import Freezer, plan_stages
from gradmix.views import Augment, Normalizer
from tests.models.tiny_clip import clip_fields
from tests.processes import in_processes
from tests.training.tiny import CLASSES, SMALL, recipe_of, tiny_images

Step = tuple[dict[str, float], dict[str, Tensor]]
Steps = dict[int, list[dict[tuple[str, str], Step]]]
BATCH = 16
WEIGHTS = ("encoder.", "projection.", "classifier.", "probe.", "prompts.", "positive.", "negative.")
STEPS: dict[str, dict[str, Any]] = {
    "cross": {"layers": "conv3_2,conv4_2"},
    "cross, per layer, window, crop": {"map_normalize": "per_layer", "locate": "window", "patch": "crop"},
    "cross, one gamma, complement": {"gamma_per": "batch", "mix_weight": "complement", "projection": "mlp"},
    "ssl": {"target": "ssl", "attribution": "gradcam", "attribution_sign": "evidence"},
    "similarity": {"target": "similarity"},
    "symmetric": {"pairing": "symmetric"},
    "no mixer": {"mixer": "none"},
    "supervised": {"lam": 0.0, "supcon_denominator": "all"},
    "cutmix": {"mixer": "cutmix"},
    "cutmix, beta": {"mixer": "cutmix", "alpha": 1.0},
    "mixup": {"mixer": "mixup"},
    "ce": {"method": "ce", "label_smoothing": 0.1},
    "ce+ssl": {"method": "ce+ssl", "projection": "mlp"},
    "moco": {"method": "moco", "queue_size": 20},
    "moco, shuffled": {"method": "moco", "queue_size": 20, "mixer": "none"},
}
NEEDED: dict[str, dict[str, Any]] = {
    "medaf": {"stem": "small", "diversity_weight": 1.0, "gate_temperature": 1.0},  # maps of 2×2 positions
    **SMALL,
    **{method: clip_fields(method) for method in ("locoop", "negprompt")},
}


def list_stages(fields: dict[str, Any]) -> tuple[Stage, ...]:
    """The stages of a method that has several."""
    stages = session.build_method(recipe_of(fields), CLASSES).stages()
    return stages if len(stages) > 1 else ()


# Every method that trains something has a step here, also one that is registered later.
STEPS |= {
    method: {"method": method, **NEEDED.get(method, {})}
    for method in METHODS
    if METHODS[method].needs_training
    and method not in {fields.get("method", "gradmix") for fields in STEPS.values()}
}
# … and in each of its stages.
STEPS |= {
    f"{method}, {stage.name}": {**fields, "stage": stage.name}
    for method, fields in dict(STEPS).items()
    for stage in list_stages(fields)
}


def one_step(
    name: str, images: ImageSet, group: ProcessGroup, dtype: torch.dtype = torch.float64, smooth: bool = False
) -> Step:
    """(losses, parameter gradients) of one step on a batch that the processes share.

    ``smooth``: with SiLU in place of ReLU, also where the blocks of a ResNet call it as a function.
    """
    if smooth:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "relu_", nn.functional.silu)
            return one_step_as_is(name, images, group, dtype, smooth)
    return one_step_as_is(name, images, group, dtype, smooth)


def one_step_as_is(
    name: str, images: ImageSet, group: ProcessGroup, dtype: torch.dtype, smooth: bool
) -> Step:
    """As :func:`one_step`; only modules are made smooth."""
    fields = dict(STEPS[name])
    stage_name = fields.pop("stage", "")
    recipe = recipe_of(fields)
    network = build_network(recipe, len(images.class_names)).train().to(dtype)
    if smooth:
        make_smooth(network)
    synchronize(network, group)
    normalizer = Normalizer.fit(images.images)
    context = Context(
        len(images.class_names),
        generator_for(0, "method"),
        normalizer,
        group,
        class_names=images.class_names,
        image_size=images.images.shape[-1],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # for initial values drawn without the generator
        method = METHODS[recipe.method](network, recipe.objective, context)
    synchronize(method, group)  # second players too
    if isinstance(method, MoCo) and "shuffled" in name:
        method.shuffles = group.size > 1  # with the union's statistics, keys must not notice
    method.to(dtype)
    if stage_name:
        planned = plan_stages(method, recipe, 8)
        stage = next(one.stage for one in planned if one.stage.name == stage_name)
        method.begin(stage, images, generator_for(0, "stage"))
        Freezer(method, planned).enter(stage)
    augment = Augment(recipe.views, normalizer)
    generator, own = generator_for(0, "step"), group.rows(BATCH)
    v1, v2 = (
        augment.apply(images.images[own], augment.draw(BATCH, generator)[own])
        .to(dtype)
        .contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    losses = method.step(Views(v1, v2, images.labels, Progress(stage=stage_name)), generator)
    average_gradients(method.parameters(), group)
    gradients = {
        key.removeprefix("network."): p.grad for key, p in method.named_parameters() if p.grad is not None
    }
    state = {
        f"{key} after the step": value
        for key, value in method.state_dict().items()
        if "num_batches" not in key and not key.startswith("network.")
    }
    return {key: float(value) for key, value in losses.items()}, gradients | state


@functools.cache
def one_step_alone(name: str, dtype: torch.dtype = torch.float64, smooth: bool = False) -> Step:
    """As :func:`one_step` of one process: computed once, for all that is compared with it."""
    return one_step(name, batch(), SINGLE_PROCESS, dtype, smooth)


def batch() -> ImageSet:
    images = tiny_images(6)
    return images.select(torch.randperm(18, generator=torch.Generator().manual_seed(3))[:BATCH])


def make_smooth(network: nn.Module) -> None:
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.ReLU | nn.LeakyReLU):
                setattr(parent, name, nn.SiLU())


KINDS = {"float64": (torch.float64, False), "float32, SiLU": (torch.float32, True)}


def steps_in(group: ProcessGroup, folder: Path) -> None:
    results = {(name, k): one_step(name, batch(), group, *KINDS[k]) for name in STEPS for k in KINDS}
    torch.save(results, folder / f"{group.rank}.pt")


@pytest.fixture(scope="module")
def steps_of(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """Number of processes -> what each of them computed."""
    found = {}
    for size in (2, 4):
        folder = tmp_path_factory.mktemp(f"steps{size}")
        in_processes(size, steps_in, folder)
        found[size] = [torch.load(folder / f"{rank}.pt") for rank in range(size)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("size", [2, 4])
def test_losses_and_gradients_are_those_of_the_union_batch(size: int, name: str, steps_of: Steps) -> None:
    losses, gradients = one_step_alone(name)
    for rank in range(size):
        theirs, their_gradients = steps_of[size][rank][name, "float64"]
        assert theirs == pytest.approx(losses, abs=1e-10)
        assert their_gradients.keys() == gradients.keys()
        for key, gradient in gradients.items():
            torch.testing.assert_close(their_gradients[key], gradient, rtol=1e-10, atol=1e-10, msg=key)


# With SiLU: an input of a ReLU may be zero but for the last bit, and on its sign hang 5e-3 of the gradient.
# Which input it is depends on the processor.
@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("size", [2, 4])
def test_in_float32_they_round_no_worse_than_one_process(size: int, name: str, steps_of: Steps) -> None:
    exact_losses, exact = one_step_alone(name, torch.float64, smooth=True)
    _, alone = one_step_alone(name, torch.float32, smooth=True)
    losses, gradients = steps_of[size][0][name, "float32, SiLU"]
    assert losses == pytest.approx(exact_losses, rel=1e-5, abs=1e-5)

    def error(found: dict[str, Tensor]) -> float:
        parts = [found[key] - value for key, value in exact.items() if key.startswith(WEIGHTS)]
        return float(torch.stack([part.norm() for part in parts]).norm())

    size_of_exact = torch.stack([v.norm() for k, v in exact.items() if k.startswith(WEIGHTS)]).norm()
    assert error(alone) < 1e-4 * size_of_exact  # rounding, so the measure is a strict one
    assert error(gradients) < 3 * error(alone)
