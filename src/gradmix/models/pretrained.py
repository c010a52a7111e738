"""Published ResNet weights (torchvision's or timm's names) as a starting point."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..hub_file import fetched, hub_address


def read_weights(source: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors or torch file, or of ``hf://owner/name``; nothing in it is executed."""
    address = hub_address(source)
    path = fetched(address) if address else Path(source)
    if not path.is_file():
        raise UserError(f"init: no file {path}; give a .safetensors or .pth file, or hf://owner/name")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: object = load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd about a file that is refused does not matter
                found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format fails in its own way; all mean the same to the user
        raise UserError(f"init: {path} is not a readable weights file ({type(error).__name__})") from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise UserError(f"init: {path} holds no plain dictionary of tensors")
    return {str(name).removeprefix("module."): value for name, value in found.items()}


def load_pretrained(encoder: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Copy weights read from ``source`` into ``encoder``.

    Their classifier (``fc``) is left out, everything else must fit. Colour weights
    fit a grey encoder: the first convolution is summed over its input channels.
    """
    weights = {k: v for k, v in weights.items() if not k.startswith("fc.")}
    own = encoder.state_dict()
    first = "conv1.weight"
    if first in weights and first in own and own[first].shape[1] == 1 and weights[first].shape[1] == 3:
        weights[first] = weights[first].sum(1, keepdim=True)
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
