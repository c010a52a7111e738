"""What a method owns and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..models import Network
from ..world import ALONE, World

Embed = Callable[[Tensor], Tensor]
Embedder = Callable[[nn.Module], Embed]


@dataclass(frozen=True)
class Views:
    """One minibatch as the network sees it: two views (N, C, H, W) of N images and their labels (N,).

    ``v2`` is ``v1`` itself for a method that asks for one view only. Where several processes share a
    batch, the views are one's own rows of it; the labels are those of the whole batch, for all know them.
    """

    v1: Tensor
    v2: Tensor
    labels: Tensor


class Method(ABC):
    """A training objective around a network.

    ``step`` leaves the gradient of its objective in the parameters' ``.grad``: a method does its own
    backward, for GradMix's maps come out of the middle of it. It knows nothing of files, devices,
    schedules or logging.

    Where several processes share a batch, each computes the losses of the whole of it from everyone's
    embeddings (:meth:`World.union`), sends the gradient of its own rows back, and leaves in ``.grad`` what
    these rows contribute: the sum over the processes is the gradient of the objective.
    """

    Settings: ClassVar[type[Any]]  # a frozen dataclass: the recipe's section ``method``
    needs_classifier: ClassVar[bool] = False
    unit_features: ClassVar[bool] = False  # the objective sees only the direction of z
    view_count: ClassVar[int] = 2

    def __init__(
        self,
        network: Network,
        settings: Any,
        *,
        embedder: Embedder | None = None,
        generator: torch.Generator | None = None,
        world: World = ALONE,
    ) -> None:
        """``embedder`` makes of a network what the trainer wants called (in mixed precision, say).

        It is given to the method because some have a second network. ``generator`` draws the initial
        state of a method that has one.
        """
        self.network = network
        self.settings = settings
        self.world = world
        self.embedder: Embedder = embedder or (lambda network: network)
        self.embed: Embed = self.embedder(network)

    @abstractmethod
    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        """Add ``scale`` × the gradient to ``.grad``; return the detached losses, ``"loss"`` among them."""

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on besides the network: saved with it, so that resuming is exact."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 (nothing to do is the rule)
        """Put back what :meth:`state` gave."""
