"""Files of weights to start from: ResNets in torchvision's, timm's or OpenOOD's names, EfficientNets, VGG32.

Files differ in what they wrap around the weights, and in the names of the same parts. :func:`read_weights`
unwraps them and gives every part its torchvision name, so that everybody else knows one spelling.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..files import read_tensors
from ..hub_file import fetch, parse_hub_address
from .heads import LinearHead
from .vgg32 import without_unused_parts

_WRAPPERS = ("state_dict", "model", "net", "model_state_dict")  # of a checkpoint, around the weights
_PREFIXES = ("module.", "model.", "net.", "backbone.")
# OpenOOD's and the usual CIFAR ResNets call the convolution beside a block, and the classifier, otherwise.
_SHORTCUT = (".shortcut.", ".downsample.")
_CLASSIFIERS = ("linear.", "classifier.", "head.", "_fc.")
_FIRST = ("conv1.weight", "_conv_stem.weight")  # the first convolution, of ResNets and of EfficientNets


def read_weights(source: str, option: str = "init") -> dict[str, Tensor]:
    """Return the tensors of a .safetensors or torch file, or ``hf://owner/name``; execute nothing in it.

    Their names are those of :func:`rename_parts`. ``option`` is what the user gave the file by, for errors.
    """
    return rename_parts(read_state_dict(source, option))


def read_state_dict(source: str, option: str = "init") -> dict[str, Tensor]:
    """Return the tensors of a weights file, unwrapped, under the names that they have in the file."""
    address = parse_hub_address(source)
    path = fetch(address) if address else Path(source)
    if not path.is_file():
        raise UserError(f"{option}: no file {path}; give a .safetensors or .pth file, or hf://owner/name")
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
                f"{option}: {path} is a TorchScript program, not weights; "
                "give its state_dict(), saved on its own"
            ) from error
        raise UserError(
            f"{option}: {path} is not a readable weights file ({type(error).__name__})"
        ) from error
    while isinstance(found, dict):
        inner = next((found[name] for name in _WRAPPERS if isinstance(found.get(name), dict)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, dict) or not found or not all(isinstance(v, Tensor) for v in found.values()):
        raise UserError(f"{option}: {path} holds no plain dictionary of tensors")
    return {str(name): value for name, value in found.items()}


def rename_parts(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under torchvision's names: without prefixes of wrappers, ``downsample``, ``fc``.

    >>> part = torch.zeros(2, 2)
    >>> list(rename_parts({"module.layer2.0.shortcut.0.weight": part, "module.linear.weight": part}))
    ['layer2.0.downsample.0.weight', 'fc.weight']
    """
    plain = {_strip(name): value for name, value in weights.items()}
    if len(plain) < len(weights):  # two networks in one file, as teacher and student: not ours to choose
        return dict(weights)
    last = next(
        (name for name in _CLASSIFIERS if f"{name}weight" in plain and "fc.weight" not in plain), None
    )
    if last is not None:
        plain = {f"fc.{n.removeprefix(last)}" if n.startswith(last) else n: v for n, v in plain.items()}
    return {name.replace(*_SHORTCUT): value for name, value in plain.items()}


def _strip(name: str) -> str:
    while name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name


def _is_program(path: Path) -> bool:
    """Return whether ``torch.jit.save`` wrote the file, as OpenAI's of CLIP: code with weights."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def load_pretrained(
    encoder: nn.Module, weights: dict[str, Tensor], source: str, option: str = "init"
) -> None:
    """Copy weights read from ``source`` into ``encoder``.

    Their classifier (``fc``) is left out, everything else must fit. Color weights
    fit a gray encoder: the first convolution is summed over its input channels. An
    encoder of two images side by side gets half of the first convolution for each.
    """
    weights = without_unused_parts(weights)
    own = encoder.state_dict()
    first = next((name for name in _FIRST if name in weights and name in own), "")
    if first:
        weights[first] = _fit_channels(weights[first], own[first].shape[1])
    missing = [k for k in own if k not in weights and not k.endswith("num_batches_tracked")]
    foreign = [k for k in weights if k not in own]
    if missing or foreign:
        culprit = f"lacks '{missing[0]}'" if missing else f"has an unexpected '{foreign[0]}'"
        raise UserError(
            f"{option}: {source} does not fit this encoder: it {culprit}; choose the encoder it was made with"
        )
    for name, value in weights.items():
        if value.shape != own[name].shape:
            wanted, got = tuple(own[name].shape), tuple(value.shape)
            hint = "; try --stem imagenet" if name == _FIRST[0] else ""
            raise UserError(f"{option}: '{name}' in {source} is {got}, the encoder wants {wanted}{hint}")
    encoder.load_state_dict(weights, strict=False)


def load_pretrained_head(
    head: nn.Module | None, weights: dict[str, Tensor], source: str, option: str = "init_head"
) -> None:
    """Copy the classifier ``fc`` of weights read from ``source`` into a linear head; shapes must fit."""
    if not isinstance(head, LinearHead):
        raise UserError(f"{option}: this method has no linear classifier; choose method ce or frozen")
    for name, own in (("weight", head.weight), ("bias", head.bias)):
        found = weights.get(f"fc.{name}")
        if name == "bias" and (found is None) != (own is None):
            has, wanted = ("no", "false") if found is None else ("a", "true")
            raise UserError(f"{option}: {source} has {has} 'fc.bias'; set classifier_bias: {wanted}")
        if own is None:
            continue
        if found is None:
            raise UserError(f"{option}: {source} has no classifier 'fc.{name}'")
        if found.shape != own.shape:
            wanted_shape, got = tuple(own.shape), tuple(found.shape)
            raise UserError(
                f"{option}: 'fc.{name}' in {source} is {got}, the classifier wants {wanted_shape}"
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
