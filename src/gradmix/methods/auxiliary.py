"""A module with an optimizer of its own, for methods with a second player: a generator, a critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..distributed import ProcessGroup
from ..distributed.gradients import average


class Auxiliary(nn.Module):
    """``module`` and its Adam; :meth:`Method.auxiliary` makes one.

    Its parameters are trained by :meth:`descend` alone: neither the recipe's optimizer nor its clipping sees
    them. They and the state of the Adam are in the checkpoint, because this is a submodule of the method.
    """

    def __init__(self, module: nn.Module, lr: float, betas: tuple[float, float], group: ProcessGroup) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.optimizer = torch.optim.Adam(module.parameters(), lr=lr, betas=betas)

    def forward(self, *inputs: Tensor) -> Any:
        """Call the module."""
        return self.module(*inputs)

    def descend(self, loss: Tensor) -> None:
        """Take one step of Adam down ``loss``; no ``.grad`` of another module is touched.

        ``loss`` is that of the whole batch, or of one's own rows: the gradient is averaged over processes.
        """
        descend_together(loss, [self])

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the Adam, for ``state_dict``."""
        return self.optimizer.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`get_extra_state` gave."""
        self.optimizer.load_state_dict(state)


def descend_together(loss: Tensor, players: Sequence[Auxiliary]) -> None:
    """Take one step of each player's own Adam down the same ``loss``: the gradients are all those before.

    One after the other they would differ: the second would descend where the first has moved to.
    """
    parameters = [p for player in players for p in player.module.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    gradients = [g if g is not None else torch.zeros_like(p) for g, p in zip(found, parameters, strict=True)]
    average(gradients, players[0].group)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    for player in players:
        player.optimizer.step()
        player.optimizer.zero_grad()
