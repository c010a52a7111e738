"""fp16 needs the loss scaled; the scale must reach every one of a step's backward passes."""

from __future__ import annotations

import pytest
import torch

from gradmix.training import session
from tests.training.tiny import tiny_images, tiny_recipe


@pytest.mark.parametrize("pairing", ["cross", "symmetric"])
def test_scaled_half_precision_ends_near_full_precision(
    monkeypatch: pytest.MonkeyPatch, pairing: str
) -> None:
    monkeypatch.setattr(session, "check_precision", lambda precision, device: None)  # emulated, for the test
    full = session.train(tiny_images(), tiny_recipe(pairing=pairing))
    half = session.train(tiny_images(), tiny_recipe(pairing=pairing, precision="fp16"))
    for name, value in full.network.named_parameters():
        other = half.network.get_parameter(name)
        assert torch.isfinite(other).all()
        # Adam moves every weight by about lr a step, whatever the gradient's size: compare with that.
        assert (value - other).abs().mean() < 0.5 * 1e-3 * full.steps, name
