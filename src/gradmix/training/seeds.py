"""Randomness as a function of (seed, purpose, number), so that nothing needs to be remembered.

A run that resumes at step 700 draws what an uninterrupted one draws there, because the generator of
step 700 is made from the number 700, not carried over from step 699.
"""

from __future__ import annotations

import hashlib

import torch


def generator_for(seed: int, purpose: str, number: int = 0) -> torch.Generator:
    """Return a CPU generator of its own for each seed, purpose and number."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
