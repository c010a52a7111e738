"""Partners: everyone has one, nobody has himself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.errors import UserError
from gradmix.mixing import derangement


@settings(max_examples=100, deadline=None)
@given(n=st.integers(2, 60), seed=st.integers(0, 2**32 - 1))
def test_derangement_is_a_permutation_without_a_fixed_point(n: int, seed: int) -> None:
    partner = derangement(n, torch.Generator().manual_seed(seed))
    assert sorted(partner.tolist()) == list(range(n))
    assert (partner != torch.arange(n)).all()


def test_every_partner_is_equally_likely() -> None:
    """6,000 draws for 4 images: each of an image's three partners 2,000 ± 150 times (four deviations)."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(4, 4, dtype=torch.long)
    for _ in range(6000):
        counts[torch.arange(4), derangement(4, generator)] += 1
    assert (counts.diagonal() == 0).all()
    others = counts[~torch.eye(4, dtype=torch.bool)]
    assert (others - 2000).abs().max() < 150


def test_same_seed_same_partners() -> None:
    first, again, other = (derangement(50, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_images_for_a_partner(n: int) -> None:
    with pytest.raises(UserError, match="at least 2 images"):
        derangement(n, torch.Generator())
