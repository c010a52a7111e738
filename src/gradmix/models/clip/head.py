"""The classes of CLIP: one text feature each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..heads import Head


class TextHead(Head):
    """Logits f_k = scale · cos(z, t_k) of text features t (K, dim), which are buffers: texts are not weights.

    Further outputs: ``cosines`` (N, K); ``negative_cosines`` (N, K·M) of M ``negatives`` per class, those of
    class k from k·M on; with ``denies``, ``no_logits`` (N, K) of the texts that deny a class.

    >>> head = TextHead(2, 2)
    >>> head.text.copy_(torch.eye(2)).shape
    torch.Size([2, 2])
    >>> head(torch.tensor([[2.0, 0.0]])).tolist()
    [[100.0, 0.0]]
    """

    kind = "text"
    text: Tensor
    scale: Tensor
    negative_text: Tensor
    no_text: Tensor

    def __init__(self, dim: int, classes: int, negatives: int = 0, denies: bool = False) -> None:
        super().__init__()
        self.num_classes, self.negatives, self.denies = classes, negatives, denies
        self.register_buffer("text", torch.zeros(classes, dim))
        self.register_buffer("scale", torch.tensor(100.0))
        if negatives:
            self.register_buffer("negative_text", torch.zeros(classes * negatives, dim))
        if denies:
            self.register_buffer("no_text", torch.zeros(classes, dim))

    def describe(self) -> dict[str, Any]:
        more = {"negatives": self.negatives, "denies": self.denies}
        return {"kind": self.kind, "classes": self.num_classes, **more}

    def forward(self, z: Tensor) -> Tensor:
        return self.scale * self.cosines(z, self.text)

    def extra(self, z: Tensor) -> dict[str, Tensor]:
        found = {"cosines": self.cosines(z, self.text)}
        if self.negatives:
            found["negative_cosines"] = self.cosines(z, self.negative_text)
        if self.denies:
            found["no_logits"] = self.scale * self.cosines(z, self.no_text)
        return found

    @staticmethod
    def cosines(z: Tensor, text: Tensor) -> Tensor:
        """Return the cosines (N, K) of embeddings (N, dim) with text features (K, dim) of unit length."""
        return F.normalize(z, dim=-1) @ text.T.to(z.dtype)
