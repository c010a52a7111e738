"""What each choice in the training step is worth: whole GradMix steps, with one choice undone in each.

python benchmarks/step_choices.py
python benchmarks/step_choices.py --encoder resnet18 --batch-size 32 --rounds 6
"""

from __future__ import annotations

import argparse
import functools
import types
from typing import Any

import torch
from torch import Tensor, nn

from gradmix.bench.rounds import take_turns
from gradmix.bench.step import TrainingStep
from gradmix.cli.bench import add_step_arguments, print_timings, step_settings
from gradmix.methods import Views
from gradmix.models.resnet import BasicBlock

REFERENCE = "as it is"


class ChannelsFirst(TrainingStep):
    """Maps and weights in the order image, channel, row, column."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        self.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def views(self, generator: torch.Generator) -> Views:
        v1, v2 = (self.augment(self.batch.images[:], generator) for _ in "12")
        return Views(v1.contiguous(), v2.contiguous(), self.batch.labels)


class GroupedOptimizer(TrainingStep):
    """The optimiser as torch runs it by default: one operation at a time over all parameters."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        for group in self.optimizer.param_groups:
            group["fused"], group["foreach"] = False, True


class NewMaps(TrainingStep):
    """Every ReLU, and every sum with a shortcut, writes to memory of its own."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        for module in self.network.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False
            if isinstance(module, BasicBlock):
                module.forward = types.MethodType(_basic_block, module)  # type: ignore[method-assign]


class KeptGradients(TrainingStep):
    """Gradients live in buffers allocated once, which are zeroed and added to."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        zero = functools.partial(self.optimizer.zero_grad, set_to_none=False)
        self.optimizer.zero_grad = zero  # type: ignore[method-assign]


class KeptImages(TrainingStep):
    """The two views are copied to memory allocated once."""

    kept: tuple[Tensor, Tensor] | None = None

    def views(self, generator: torch.Generator) -> Views:
        new = [self.augment(self.batch.images[:], generator) for _ in "12"]
        if self.kept is None:
            first, second = (torch.empty_like(view, memory_format=torch.channels_last) for view in new)
            self.kept = first, second
        for buffer, view in zip(self.kept, new, strict=True):
            buffer.copy_(view)
        return Views(*self.kept, self.batch.labels)


CONTESTANTS: dict[str, type[TrainingStep]] = {
    REFERENCE: TrainingStep,
    "channels first": ChannelsFirst,
    "optimiser not fused": GroupedOptimizer,
    "nothing in place": NewMaps,
    "gradients kept, zeroed": KeptGradients,
    "views written to kept memory": KeptImages,
}


def _basic_block(self: Any, x: Tensor) -> Tensor:
    out = self.relu(self.bn1(self.conv1(x)))
    out = self.bn2(self.conv2(out)) + (x if self.downsample is None else self.downsample(x))
    return torch.relu(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_step_arguments(parser, rounds=24)
    args = parser.parse_args()
    settings = step_settings(args)
    steps = {name: kind(settings.recipe(), settings.batch()) for name, kind in CONTESTANTS.items()}
    print_timings("step", f"x {REFERENCE}", take_turns(steps, REFERENCE, args.rounds))


if __name__ == "__main__":
    main()
