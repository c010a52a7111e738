"""OpenMax over K + 1 outputs: by hand, against the slow one, and what it is without an unknown output."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradmix.detection import GOpenMax, OpenMax, Outputs, load_detector, make_detector
from gradmix.detection import g_openmax as module
from gradmix.detection.openmax import distances
from gradmix.errors import UserError
from tests.reference.g_openmax_gan import known_log_probability


def images(count: int = 90, seed: int = 0, dummies: int = 2) -> Outputs:
    """Logits of three classes around their own corner, and dummy logits, in float64."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3

    def draw(columns: int) -> Tensor:
        return torch.randn(count, columns, generator=generator, dtype=torch.float64)

    logits = 6 * torch.nn.functional.one_hot(labels, 3).double() + draw(3)
    return Outputs(draw(2), labels, logits, {"dummies": draw(dummies) - 1})


def one(logits: list[float], dummy: float) -> Outputs:
    return Outputs(
        torch.zeros(1, 2), torch.tensor([-1]), torch.tensor([logits]), {"dummies": torch.tensor([[dummy]])}
    )


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """f = (4, 2, 1), u = 0, w = (.5, .2, .9), α = 2: f̂ = (2, 1.8, 1), f̂_0 = 2.2.

    P(unknown) = (e^2.2 + e^0) / (e^2.2 + e^0 + e^2 + e^1.8 + e) = 10.025 / 26.182.
    """
    made = GOpenMax(alpha=2, shift_logits=False).fit(images(), 3)
    w = torch.tensor([[0.5, 0.2, 0.9]], dtype=torch.float64)
    monkeypatch.setattr(module, "distances", lambda *given: w)
    monkeypatch.setattr(type(made._tails), "outlyingness", lambda self, d: d)
    found = made.score(one([4.0, 2.0, 1.0], 0.0))
    assert 1 - math.exp(float(found.score)) == pytest.approx(0.3829, abs=5e-5)
    assert found.label.tolist() == [0]


@pytest.mark.parametrize("alpha", [1, 2, 9])
@pytest.mark.parametrize("shifted", [True, False])
def test_against_the_slow_one(alpha: int, shifted: bool) -> None:
    made, test = GOpenMax(alpha=alpha, shift_logits=shifted).fit(images(), 3), images(20, seed=3)
    assert test.logits is not None
    outputs = torch.cat([test.logits, test.extra["dummies"].amax(1, keepdim=True)], dim=1)
    w = made._fitted().outlyingness(distances(outputs, made._means, "euclidean"))
    found = made.score(test)
    for i, (row, own) in enumerate(zip(outputs.tolist(), w.tolist(), strict=True)):
        score, label = known_log_probability(row, own, alpha, shifted)
        assert float(found.score[i]) == pytest.approx(score, rel=1e-9)
        assert int(found.label[i]) == label


def test_the_means_are_of_all_outputs() -> None:
    made, train = GOpenMax().fit(images(), 3), images()
    assert train.logits is not None
    outputs = torch.cat([train.logits, train.extra["dummies"].amax(1, keepdim=True)], dim=1)
    right = outputs.argmax(1) == train.labels
    for c in range(3):
        torch.testing.assert_close(made._means[c], outputs[right & (train.labels == c)].mean(0))


def test_an_unknown_output_that_never_speaks_is_openmax() -> None:
    """A constant output far below all others: the same distances, the same ranks, no share of its own."""
    train, test = images(), images(20, seed=3)
    silent, quiet = (
        Outputs(o.features, o.labels, o.logits, {"dummies": torch.full((len(o.labels), 1), -200.0)})
        for o in (train, test)
    )
    ours = GOpenMax(shift_logits=False).fit(silent, 3).score(quiet)
    plain = OpenMax(shift_logits=False).fit(train, 3).score(test)
    torch.testing.assert_close(ours.score, plain.score, rtol=1e-9, atol=1e-9)
    assert torch.equal(ours.label, plain.label)


def test_a_larger_unknown_output_lowers_the_score() -> None:
    made = GOpenMax().fit(images(), 3)
    scores = [float(made.score(one([5.0, 0.0, 0.0], u)).score) for u in (0.0, 2.0, 8.0)]
    assert scores == sorted(scores, reverse=True)


def test_settings_and_state_survive() -> None:
    made = make_detector("g-openmax", tail=7, alpha=2, openmax_distance="eucos", shift=2.0).fit(images(), 3)
    again = load_detector("g-openmax", made.settings(), {k: v.clone() for k, v in made.state().items()})
    assert again.settings() == made.settings()
    assert torch.equal(again.score(images(9, 3)).score, made.score(images(9, 3)).score)
    with pytest.raises(UserError, match="needs dummies, which this network does not give"):
        made.score(Outputs(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(1, 3)))
