from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from gradmix.errors import UserError
from gradmix.losses import smooth_cross_entropy, smooth_targets

LABELS = torch.tensor([2, 0, 4, 4])


def logits(classes: int = 5) -> torch.Tensor:
    return torch.randn(4, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def slow(rows: torch.Tensor, smoothing: float, spread: str) -> float:
    """−Σ_c q_c log p_c, number by number."""
    total, classes = 0.0, rows.shape[1]
    for row, label in zip(rows.tolist(), LABELS.tolist(), strict=True):
        log_sum = math.log(sum(math.exp(f) for f in row))
        for c, f in enumerate(row):
            if spread == "others":
                q = 1 - smoothing if c == label else smoothing / (classes - 1)
            else:
                q = smoothing / classes + (1 - smoothing) * (c == label)
            total -= q * (f - log_sum)
    return total / len(rows)


@pytest.mark.parametrize("spread", ["all", "others"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_it_is_the_slow_one(smoothing: float, spread: str) -> None:
    found = smooth_cross_entropy(logits(), LABELS, smoothing, spread)
    assert found.item() == pytest.approx(slow(logits(), smoothing, spread), abs=1e-12)
    targets = smooth_targets(LABELS, 5, smoothing, spread).double()
    assert F.cross_entropy(logits(), targets).item() == pytest.approx(found.item(), abs=1e-6)  # q is float32
    torch.testing.assert_close(targets.sum(1), torch.ones(4).double())


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 0.99])
def test_all_is_torchs(smoothing: float) -> None:
    theirs = F.cross_entropy(logits(), LABELS, label_smoothing=smoothing)
    assert torch.equal(smooth_cross_entropy(logits(), LABELS, smoothing), theirs)


def test_vazes_tinyimagenet_setting() -> None:
    """ε = .9 of 20 classes: .1 to the true class, .9/19 to each other; uniform logits cost log 20."""
    (q,) = smooth_targets(torch.tensor([7]), 20, 0.9, "others").tolist()
    assert q[7] == pytest.approx(0.1, abs=1e-7)
    assert q[:7] + q[8:] == pytest.approx([0.9 / 19] * 19, abs=1e-7)
    assert smooth_targets(torch.tensor([7]), 20, 0.9, "all")[0, 7].item() == pytest.approx(0.145, abs=1e-7)
    uniform = torch.zeros(1, 20, dtype=torch.float64)
    loss = smooth_cross_entropy(uniform, torch.tensor([7]), 0.9, "others")
    assert loss.item() == pytest.approx(math.log(20), abs=1e-12)
    rows = torch.randn(1, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    converted = F.cross_entropy(rows, torch.tensor([7]), label_smoothing=0.9 * 20 / 19)
    assert smooth_cross_entropy(rows, torch.tensor([7]), 0.9, "others").item() == pytest.approx(
        converted.item(), abs=1e-12
    )


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'others'"):
        smooth_cross_entropy(logits(), LABELS, 0.1, "other")
    for call in (smooth_cross_entropy, lambda f, y, e, s: smooth_targets(y, f.shape[1], e, s)):
        with pytest.raises(UserError, match="less to the true class than to each of the 4 others"):
            call(logits(), LABELS, 0.9, "others")
    even = smooth_targets(LABELS, 10, 0.9, "others")  # the same to all: allowed, if of no use
    torch.testing.assert_close(even, torch.full((4, 10), 0.1))
    assert smooth_cross_entropy(logits(10), LABELS, 0.9, "others").item() > 0
