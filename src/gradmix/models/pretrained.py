"""Published weights (ResNets in torchvision's or timm's names, VGG32) as a starting point."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..files import read_tensors
from ..hub_file import fetch, parse_hub_address
from .heads import LinearHead
from .vgg32 import without_unused_parts


def read_weights(source: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors or torch file, or ``hf://owner/name``; execute nothing in it."""
    address = parse_hub_address(source)
    path = fetch(address) if address else Path(source)
    if not path.is_file():
        raise UserError(f"init: no file {path}; give a .safetensors or .pth file, or hf://owner/name")
    try:
        if path.suffix == ".safetensors":
            found: object = read_tensors(path)[1]
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd about a file that is refused does not matter
                found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format fails in its own way; all mean the same to the user
        if _is_program(path):
            raise UserError(
                f"init: {path} is a TorchScript program, not weights; give its state_dict(), saved on its own"
            ) from error
        raise UserError(f"init: {path} is not a readable weights file ({type(error).__name__})") from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise UserError(f"init: {path} holds no plain dictionary of tensors")
    return {str(name).removeprefix("module."): value for name, value in found.items()}


def _is_program(path: Path) -> bool:
    """Return whether ``torch.jit.save`` wrote the file, as OpenAI's of CLIP: code with weights."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def load_pretrained(encoder: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Copy weights read from ``source`` into ``encoder``.

    Their classifier (``fc``) is left out, everything else must fit. Color weights
    fit a gray encoder: the first convolution is summed over its input channels. An
    encoder of two images side by side gets half of the first convolution for each.
    """
    weights = without_unused_parts(weights)
    own = encoder.state_dict()
    first = "conv1.weight"
    if first in weights and first in own:
        weights[first] = _fit_channels(weights[first], own[first].shape[1])
    missing = [k for k in own if k not in weights and not k.endswith("num_batches_tracked")]
    foreign = [k for k in weights if k not in own]
    if missing or foreign:
        culprit = f"lacks '{missing[0]}'" if missing else f"has an unexpected '{foreign[0]}'"
        raise UserError(
            f"init: {source} does not fit this encoder: it {culprit}; choose the encoder it was made with"
        )
    for name, value in weights.items():
        if value.shape != own[name].shape:
            wanted, got = tuple(own[name].shape), tuple(value.shape)
            hint = "; try --stem imagenet" if name == first else ""
            raise UserError(f"init: '{name}' in {source} is {got}, the encoder wants {wanted}{hint}")
    encoder.load_state_dict(weights, strict=False)


def load_pretrained_head(head: nn.Module | None, weights: dict[str, Tensor], source: str) -> None:
    """Copy the classifier ``fc`` of weights read from ``source`` into a linear head; shapes must fit."""
    if not isinstance(head, LinearHead):
        raise UserError("init_head: this method has no linear classifier; choose method ce or frozen")
    for name, own in (("weight", head.weight), ("bias", head.bias)):
        found = weights.get(f"fc.{name}")
        if name == "bias" and (found is None) != (own is None):
            has, wanted = ("no", "false") if found is None else ("a", "true")
            raise UserError(f"init_head: {source} has {has} 'fc.bias'; set classifier_bias: {wanted}")
        if own is None:
            continue
        if found is None:
            raise UserError(f"init_head: {source} has no classifier 'fc.{name}'")
        if found.shape != own.shape:
            wanted_shape, got = tuple(own.shape), tuple(found.shape)
            raise UserError(
                f"init_head: 'fc.{name}' in {source} is {got}, the classifier wants {wanted_shape}"
            )
        own.data.copy_(found)


def _fit_channels(weight: Tensor, channels: int) -> Tensor:
    """Return the weight (K, C, h, w) of a first convolution for ``channels``, if it can be made to fit.

    >>> _fit_channels(torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1), 1).flatten().tolist()
    [6.0]
    >>> _fit_channels(torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1), 6).flatten().tolist()
    [0.5, 1.0, 1.5, 0.5, 1.0, 1.5]
    """
    if channels in (1, 2) and weight.shape[1] == 3:
        weight = weight.sum(1, keepdim=True)
    return torch.cat([weight, weight], dim=1) / 2 if channels == 2 * weight.shape[1] else weight
