"""What a method owns and what it must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..data import ImageSet
from ..detection import Outputs
from ..distributed import SINGLE_PROCESS, ProcessGroup
from ..distributed.batch_norm import statistics_are_local
from ..distributed.gradients import gather_rows
from ..errors import UserError
from ..models import ModelSettings, Network, NetworkSpec
from ..views import Normalizer
from .auxiliary import Auxiliary

Embed = Callable[[Tensor], Tensor]
Embedder = Callable[[nn.Module], Embed]


@dataclass(frozen=True)
class Progress:
    """Where the training is: ``step`` of ``total`` (from 0), in which epoch and which stage."""

    step: int = 0
    total: int = 1
    epoch: int = 0
    stage: str = ""


@dataclass(frozen=True)
class Views:
    """One minibatch as the network sees it: two views (N, C, H, W) of N images and their labels (N,).

    ``v2`` is ``v1`` itself for a method that asks for one view only. Where several processes share a
    batch, the views are one's own rows of it, to be given to :meth:`Method.embed`, which returns the
    embeddings of the whole batch; the labels are those of the whole batch.
    """

    v1: Tensor
    v2: Tensor
    labels: Tensor
    progress: Progress = Progress()


def _default_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _call_unchanged(network: nn.Module) -> Embed:
    return network


@dataclass(frozen=True)
class Context:
    """What the trainer tells a method when it is made; the defaults are for one process and float32."""

    num_classes: int = 0
    generator: torch.Generator = field(default_factory=_default_generator)  # draws the initial state
    normalizer: Normalizer | None = None  # from pixels in [0, 1] to what the network sees
    group: ProcessGroup = SINGLE_PROCESS
    call: Embedder = _call_unchanged  # makes of a network what calls it in the trainer's precision, compiled
    class_names: tuple[str, ...] = ()
    channels: int = 3  # of the images
    image_size: int = 32


@dataclass(frozen=True)
class Stage:
    """A part of the training with its own optimizer and schedule.

    ``share`` of the steps (of the sum over the stages); ``trains``: names of the method's submodules and
    parameters, such as ``network.encoder``, or None for all of it: what is not named is frozen, and in eval
    mode. ``settings`` and ``views`` are fields of the recipe that differ in this stage.
    """

    name: str = ""
    share: float = 1.0
    trains: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, Any] = field(default_factory=dict)


class _Rows(Protocol):
    """Something with one row per image: a tensor, or the draws of an augmentation or a mixer."""

    def __len__(self) -> int: ...

    def __getitem__(self, own: slice, /) -> Any: ...


_R = TypeVar("_R", bound=_Rows)


class Method(nn.Module):
    """A training objective around a network.

    A method owns what it trains: its parameters, buffers and submodules, the network among them, go into the
    optimizer and the checkpoint. It implements :meth:`losses`; one that needs the middle of the backward
    (GradMix, MoCo) overrides :meth:`step`. It knows nothing of files, devices, schedules or logging, and
    reads as if there were one process: :meth:`embed` returns the embeddings of the whole batch.

    What inference needs belongs into the network (:meth:`describe_network`); what only training needs stays
    in the method.
    """

    Settings: ClassVar[type[Any]]  # a frozen dataclass: the recipe's section ``method``
    needs_classifier: ClassVar[bool] = False
    unit_features: ClassVar[bool] = False  # the objective sees only the direction of z
    view_count: ClassVar[int] = 2
    detector: ClassVar[str] = "knn"  # the score that decides unless the recipe names another
    needs_training: ClassVar[bool] = True  # False: making the method is all there is to do
    score_temperature: ClassVar[float] = 1.0  # of that score, if it is a softmax

    network: Network

    takes_towers: bool = False  # whether encoder hf:… will do, a body in place of the encoder
    takes_one_class: ClassVar[bool] = False  # whether there is something to learn from a single class

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network that this method trains: ``plain`` (encoder and projection) with its head.

        A description instead of a module, so that the model file can be opened without the method.
        """
        spec = replace(plain, unit_features=cls.unit_features)
        if not cls.needs_classifier:
            return spec
        return replace(spec, head={"kind": "linear", "classes": num_classes, "bias": model.classifier_bias})

    def __init__(self, network: Network, settings: Any, context: Context | None = None) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        self.context = context or Context(network.num_classes)
        self.embed: Embed = self.embedder(network)

    def check_images(self, images: ImageSet) -> None:
        """Raise UserError for images that this method cannot be trained on; called before anything else."""

    def stages(self) -> tuple[Stage, ...]:
        """Return the parts of the training, in their order: by default one."""
        return (Stage(),)

    def passes(self, stage: Stage) -> float:
        """Return how many forward passes of the encoder an image costs in a step; a backward counts as two.

        What it should cost, for ``gradmix bench methods``; passes of other modules are not counted.
        """
        return 3.0 * self.view_count

    @property
    def period(self) -> int:
        """After how many steps the same kinds of steps come again, for what counts the work of a step."""
        return 1

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        """Do what is to be done before the first step of a stage.

        It must depend on the method's state, the images and the generator alone. What it makes must be kept
        in buffers (empty in ``__init__``, of any size afterwards), so that it is in the checkpoint.
        """

    @classmethod
    def find_threshold(cls, settings: Any, train: Outputs) -> float | None:
        """Return the threshold of its own score, or None for the conformal one, which keeps a promise.

        For methods whose papers have a rule of their own; ``train`` is what the network says about the
        training images.
        """
        return None

    def update_network(self) -> None:
        """Bring the network up to date with what is trained beside it; called before the network is used."""

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the losses by name: ``"loss"`` is minimized, the others are only logged."""
        raise NotImplementedError(f"{type(self).__name__} defines neither losses nor step")

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        """Add ``scale`` × the gradient to ``.grad``; return the detached losses, ``"loss"`` among them."""
        losses = self.losses(views, generator)
        if not isinstance(losses, dict) or not isinstance(losses.get("loss"), Tensor):
            raise UserError(f"{type(self).__name__}.losses must return a dictionary with a tensor 'loss'")
        torch.autograd.backward(scale * losses["loss"])
        return detach_losses(losses)

    def logits(self, z: Tensor) -> Tensor:
        """Return the logits (N, K) of embeddings (N, d), for methods whose network has a head."""
        logits = self.network.logits(z)
        if logits is None:
            raise UserError(f"{type(self).__name__}: the network has no head; set needs_classifier = True")
        return logits

    def auxiliary(
        self, module: nn.Module, lr: float = 2e-4, betas: tuple[float, float] = (0.5, 0.999)
    ) -> Auxiliary:
        """Return ``module`` with an Adam of its own, to be assigned to the method."""
        return Auxiliary(module, lr, betas, self.context.group)

    # What several processes need; each is the identity for one.

    def embedder(self, module: nn.Module) -> Embed:
        """Return a function from one's own rows of images to ``module``'s embeddings of the whole batch."""
        call = self.context.call(module)
        if isinstance(call, nn.Module):  # its bound method: a module would be registered a second time
            call = call.__call__
        if self.context.group.size == 1:
            return call
        return lambda images: self.all_rows(call(images))

    def all_rows(self, own: Tensor) -> Tensor:
        """Return the rows of the whole batch, given one's own, with the gradient of one's own."""
        return gather_rows(own, self.context.group)

    def own_rows(self, every: _R) -> _R:
        """Return one's own rows of what was drawn for the whole batch."""
        own: _R = every[self.context.group.rows(len(every))]
        return own

    def take_rows(self, own: Tensor, order: Tensor) -> Tensor:
        """Return rows ``order`` (N,) of the whole batch, those that replace one's own rows."""
        return self.context.group.exchange_rows(own, order)

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest value of the whole batch, given those of one's own rows."""
        return self.context.group.maximum(values.amax())

    def batch_size(self, own: Tensor) -> int:
        """Return the number of images in the whole batch, given one's own rows."""
        return len(own) * self.context.group.size

    @property
    def gradient_factor(self) -> float:
        """What the gradient before :meth:`embed` is multiplied by until it is averaged over the processes."""
        return float(self.context.group.size)

    @property
    def batch_norm_is_local(self) -> bool:
        """Whether BatchNorm sees only some rows of a batch."""
        return self.context.group.size > 1 and statistics_are_local(self.network)


def detach_losses(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the losses without their graph."""
    return {name: value.detach() for name, value in losses.items()}
