"""A SHA-256 of tensors: whatever a bit flip, a bad cable or half a copy changes in a file is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def add_tensors(digest: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    """Add name, type, shape and values of every tensor to ``digest``."""
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return 64 hex digits that change with any bit of the tensors, and of ``text``.

    >>> checksum({"x": torch.zeros(2)}) == checksum({"x": torch.tensor([0.0, -0.0])})
    False
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    add_tensors(digest, tensors)
    return digest.hexdigest()
