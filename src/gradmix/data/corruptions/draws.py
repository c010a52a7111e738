"""Random numbers that belong to an image, not to the batch it happens to be in.

Philox is a generator with a counter that can be set: image i owns a fixed stretch of the stream, so a
whole chunk of images is one vectorised draw, and any other division into chunks gives the same numbers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_WORDS_PER_COUNT = 4  # Philox yields four 64-bit words for each value of its counter


@dataclass(frozen=True)
class Draws:
    """Random numbers for images ``first_index`` … ``first_index + n − 1`` of a set.

    They depend on (seed, name, severity, index of the image, purpose) and nothing else.
    """

    seed: int
    name: str
    severity: int
    first_index: int
    n: int

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Return (n, *shape) float64 ~ U[0, 1); the same purpose twice gives the same numbers.

        >>> whole, last = Draws(0, "fog", 1, 0, 3), Draws(0, "fog", 1, 2, 1)
        >>> torch.equal(whole.uniform("drops", 5)[2:], last.uniform("drops", 5))
        True
        """
        label = f"{self.seed}/{self.name}/{self.severity}/{purpose}"
        key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
        wanted = math.prod(shape)
        counts = -(-wanted // _WORDS_PER_COUNT)
        stream = np.random.Philox(key=key)
        stream.advance(self.first_index * counts)
        numbers = np.random.Generator(stream).random((self.n, counts * _WORDS_PER_COUNT))
        return torch.from_numpy(numbers)[:, :wanted].reshape(self.n, *shape)

    def between(self, low: float, high: float, purpose: str, *shape: int) -> Tensor:
        """Return (n, *shape) float64 ~ U[low, high)."""
        return low + (high - low) * self.uniform(purpose, *shape)

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """Return (n, *shape) float64 ~ N(0, 1): the inverse distribution function, one uniform number each.

        Rejection methods take a varying number of draws, which would let images shift one another.
        """
        half_a_step = 2.0**-54  # keeps 0 out, whose normal quantile is minus infinity
        numbers: Tensor = torch.special.ndtri(self.uniform(purpose, *shape) + half_a_step)
        return numbers

    def below(self, limit: Tensor, purpose: str) -> Tensor:
        """Return (n,) int64, uniform in 0 … limit − 1; ``limit`` (n,) or a single number of int64."""
        return (self.uniform(purpose) * limit).long()
