"""A network that somebody else trained, as a :class:`Network`: encoder, and the linear classifier on it.

From a file of weights of one of the encoders here, or from any ``nn.Module``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, choose, first_line
from .backbone import BACKBONE, Backbone
from .encoders import ENCODERS, resolve_stem
from .heads import LinearHead
from .network import Network, NetworkSpec
from .pretrained import load_pretrained, load_pretrained_head, read_state_dict, read_weights, rename_parts
from .user_backbone import read_user_backbone

OPTION = "weights"  # what the user gives the file by


@dataclass(frozen=True, eq=False)
class GivenNetwork:
    """A network, what it is built from, and in one line what was taken for its features and logits."""

    network: Network
    spec: NetworkSpec
    note: str = ""


def network_from_weights(source: str, encoder: str, num_classes: int, image_size: int = 0) -> GivenNetwork:
    """Build ``encoder`` with its classifier from a file of weights; both must fit, key by key.

    ``image_size`` 0 is :func:`default_image_size`. A file without a classifier gives features only.
    """
    choose("encoder", encoder, ENCODERS)
    weights = read_weights(source, OPTION)
    stem = resolve_stem("auto", image_size, weights)
    channels = _count_channels(weights)
    made = ENCODERS[encoder](channels, stem)
    load_pretrained(made, dict(weights), source, OPTION)
    size = image_size or default_image_size(stem)
    network = Network(made, made.dim, made.dim, "none")
    head = None
    if "fc.weight" in weights:
        check_class_count(len(weights["fc.weight"]), num_classes, source)
        head = LinearHead(made.dim, num_classes, bias="fc.bias" in weights)
        load_pretrained_head(head, weights, source, OPTION)
        network.classifier = head
    return _finish(network, NetworkSpec(encoder, stem, channels, size, "none", made.dim), "")


def network_from_module(
    module: nn.Module, num_classes: int, image_size: int = 32, channels: int = 3
) -> GivenNetwork:
    """Take ``module`` apart into features and a linear classifier, by passing one empty image through it.

    The classifier is the last ``nn.Linear`` that runs and has ``num_classes`` outputs: what goes into it are
    the features, what comes out the logits, whatever is done to them after that. Without one, an output
    (N, num_classes) counts as logits and as features, and any other output (of timm's models, what
    ``forward_features`` gives) as features without logits.
    """
    module.eval()
    name = _find_classifier(module, num_classes, channels, image_size)
    if name:
        encoder = Backbone(module, name, channels, image_size, before=True)
        head: LinearHead | None = _copy_linear(module.get_submodule(name))
        note = f"its features go into '{name}'"
    else:
        encoder = Backbone(module, "", channels, image_size)
        head = _identity_head(num_classes) if encoder.dim == num_classes else None
        note = "no nn.Linear of it has as many outputs as there are known classes: "
        note += "its output counts as logits and as features" if head else "its output counts as features"
    network = Network(encoder, encoder.dim, encoder.dim, "none", head)
    network.to(next(module.parameters(), torch.zeros(())).device)
    spec = NetworkSpec(BACKBONE, encoder.stem, channels, image_size, "none", encoder.dim)
    return _finish(network, spec, note)


def build_user_module(word: str, weights: str = "") -> nn.Module:
    """Return what the function of ``mine.py:build`` returns, with the ``weights`` of a file if one is given.

    The file is the user's own code, named by the user, and is run like any script.
    """
    made = read_user_backbone(word).build()
    if weights:
        load_module_weights(made, weights)
    return made


def load_module_weights(module: nn.Module, source: str) -> None:
    """Copy the weights of a file into ``module``; every name and shape must fit, but for usual prefixes."""
    own = module.state_dict()
    found = read_state_dict(source, OPTION)
    if not own.keys() <= found.keys():
        plain = rename_parts(found)
        found = plain if len(own.keys() & plain.keys()) > len(own.keys() & found.keys()) else found
    missing = next((n for n in own if n not in found and not n.endswith("num_batches_tracked")), None)
    foreign = next((n for n in found if n not in own), None)
    if missing or foreign:
        culprit = f"lacks '{missing}'" if missing else f"has an unexpected '{foreign}'"
        raise UserError(f"{OPTION}: {source} does not fit the backbone: it {culprit}")
    for name, value in found.items():
        if value.shape != own[name].shape:
            got, shape = tuple(value.shape), tuple(own[name].shape)
            raise UserError(f"{OPTION}: '{name}' in {source} is {got}, the backbone wants {shape}")
    module.load_state_dict(found, strict=False)


def default_image_size(stem: str) -> int:
    """Return the usual side of the images of a network with this stem.

    >>> default_image_size("imagenet"), default_image_size("small")
    (224, 32)
    """
    return 224 if stem == "imagenet" else 32


def check_class_count(found: int, wanted: int, source: str) -> None:
    """Refuse a classifier of another number of classes than there are known ones."""
    if found != wanted:
        raise UserError(
            f"{OPTION}: {source} has a classifier of {found} classes, and there are {wanted} known ones; "
            "give the protocol, trial or class list that it was trained for"
        )


def _finish(network: Network, spec: NetworkSpec, note: str) -> GivenNetwork:
    head = network.classifier
    network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    described = None if head is None else head.describe()
    return GivenNetwork(network, replace(spec, head=described), note)


def _count_channels(weights: dict[str, Tensor]) -> int:
    first = weights.get("conv1.weight", weights.get("_conv_stem.weight"))
    return 1 if first is not None and first.dim() == 4 and first.shape[1] == 1 else 3


@torch.no_grad()
def _find_classifier(module: nn.Module, num_classes: int, channels: int, image_size: int) -> str:
    """Return the name of the last linear layer that ran and has ``num_classes`` outputs, or ""."""
    ran: list[str] = []

    def recorder(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(layer: nn.Module, inputs: Any, output: Any) -> None:
            if output.dim() == 2 and inputs[0].dim() == 2:
                ran.append(name)

        return record

    linear = {
        name: part
        for name, part in module.named_modules()
        if name and isinstance(part, nn.Linear) and part.out_features == num_classes
    }
    handles = [part.register_forward_hook(recorder(name)) for name, part in linear.items()]
    reference = next(module.parameters(), torch.zeros(()))
    try:
        module(torch.zeros(1, channels, image_size, image_size).to(reference))
    except Exception as error:  # whatever the user's own code raises
        size = f"{channels} x {image_size} x {image_size}"
        raise UserError(
            f"the backbone {type(module).__qualname__} cannot take images of {size}: {first_line(error)}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return ran[-1] if ran else ""


def _copy_linear(layer: nn.Module) -> LinearHead:
    assert isinstance(layer, nn.Linear)
    head = LinearHead(layer.in_features, layer.out_features, bias=layer.bias is not None)
    head.load_state_dict(layer.state_dict())
    return head


def _identity_head(classes: int) -> LinearHead:
    head = LinearHead(classes, classes, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(classes))
    return head
