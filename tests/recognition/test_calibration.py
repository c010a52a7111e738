"""From which images a threshold is set, and by which classes; on features that are made up."""

from __future__ import annotations

import pytest
import torch

from gradmix.detection import KNN, MLS, Outputs, calibrate
from gradmix.detection.threshold import conformal_rank
from gradmix.recognition.calibration import set_decision
from gradmix.recognition.class_bias import MAX_LOST_SHARE, compute_class_bias, left_out_similarity, lost_share


def said(n: int, seed: int, shift: float = 0.0) -> Outputs:
    """Three classes in six dimensions, every fifth image of a class that it does not look like; logits."""
    g = torch.Generator().manual_seed(seed)
    looks = torch.arange(n) % 3
    labels = torch.where(torch.arange(n) % 5 == 0, (looks + 1) % 3, looks)
    logits = 4 * torch.eye(3)[looks] + torch.rand(n, 3, generator=g) * (1 + looks[:, None]) + shift
    return Outputs(torch.eye(3, 6)[looks] + 0.3 * torch.randn(n, 6, generator=g), labels, logits)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_held_out_images_set_the_threshold_by_what_they_are_taken_for(per_class: bool, held: bool) -> None:
    """Of a new image only that is known, not its class; and training images only where no others are."""
    train, held_out = said(90, 1, shift=5.0), said(60, 2)
    knn = KNN(k=3).fit(train, 3)
    for detector in (MLS(), knn):
        known = detector.score(held_out if held else train)
        if detector is knn and not held:
            known = knn.leave_one_out()
        assert not torch.equal(known.label, (held_out if held else train).labels)
        expected = calibrate(
            known.score, 0.2, labels=known.label if per_class else None, num_classes=3, held_out=held
        )
        found = set_decision(detector, 3, train, held_out if held else None, 0.2, per_class).threshold
        assert found == expected
        assert (found.held_out, found.promised) == (held, held)


def around(axis: int, n: int, seed: int, noise: float = 0.2) -> torch.Tensor:
    return torch.eye(4)[axis] + noise * torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))


def test_enrolled_images_that_are_taken_for_another_class_set_no_threshold_of_their_own() -> None:
    stray = torch.tensor([[0.5, 0.0, 0.0, 1.0]])  # far from all, and from its own class most
    features = torch.cat([around(0, 30, 1), around(1, 30, 2), around(2, 8, 3), stray])
    labels = torch.tensor([0] * 30 + [1] * 30 + [2] * 9)
    knn = KNN(k=3, normalize="none").fit(Outputs(features, labels), 3)
    held_out = Outputs(torch.cat([around(0, 20, 4), around(1, 20, 5)]), torch.tensor([0] * 20 + [1] * 20))
    decision = set_decision(knn, 3, None, held_out, 0.1, enrolled=[2], biased=False)
    found = decision.scores_of_classes(left_out_similarity(knn, knn.state(), 2))
    assert found.label.tolist() == [2] * 8 + [0]
    own = calibrate(found.score[:8], 1 / 9).value
    assert float(found.score[8]) < min(own, decision.threshold.value)
    assert decision.threshold.by_class[2].value == min(own, decision.threshold.value)


def biases(new: torch.Tensor, share: float = 0.1) -> tuple[float, ...]:
    """Two trained classes, and of their held-out images the bias of a third."""
    features = torch.cat([around(0, 30, 1), around(1, 30, 2), new])
    knn = KNN(k=3, normalize="none").fit(
        Outputs(features, torch.tensor([0] * 30 + [1] * 30 + [2] * len(new))), 3
    )
    held_out = Outputs(torch.cat([around(0, 20, 4), around(1, 20, 5)]), torch.tensor([0] * 20 + [1] * 20))
    return compute_class_bias(knn, held_out, [2], share)


def test_a_bias_is_a_margin_to_the_trained_classes_and_never_negative() -> None:
    """A class on top of a trained one wins too often already: it gets none, and loses none."""
    assert biases(around(0, 12, 6, noise=0.01), share=0.5) == (0.0, 0.0, 0.0)


def test_a_bias_brings_a_class_no_nearer_than_trained_ones_come() -> None:
    """Its images are nearer to each other than those of trained classes: they need no help."""
    assert biases(around(2, 8, 7, noise=0.001))[2] == 0.0
    assert biases(around(2, 8, 7, noise=0.6))[2] > 0.0


def test_a_bias_does_not_depend_on_other_enrolled_classes() -> None:
    """It is a margin to the trained ones; a class enrolled in the midst of them would widen it."""
    held_out = Outputs(torch.cat([around(0, 20, 4), around(1, 20, 5)]), torch.tensor([0] * 20 + [1] * 20))
    one, near = around(2, 1, 6), held_out.features  # as near to the held-out images as can be
    features = torch.cat([around(0, 30, 1), around(1, 30, 2), one, near])
    labels = torch.tensor([0] * 30 + [1] * 30 + [2] + [3] * len(near))
    alone = KNN(k=3, normalize="none").fit(Outputs(features[:61], labels[:61]), 3)
    both = KNN(k=3, normalize="none").fit(Outputs(features, labels), 4)
    expected = compute_class_bias(alone, held_out, [2], 0.1)[2]
    assert expected > 0
    assert compute_class_bias(both, held_out, [2, 3], 0.1)[2] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("n", [5, 10, 48, 49, 99])
def test_how_many_images_go_over_to_an_enrolled_class(n: int) -> None:
    """The bias is the r-th smallest margin of n; a new image goes over if its margin lies below."""
    generator = torch.Generator().manual_seed(n)
    margins = torch.rand((20_000, n + 1), generator=generator)
    rank = max(1, conformal_rank(n, MAX_LOST_SHARE))
    bound = margins[:, :n].kthvalue(rank, dim=1).values
    lost = float((margins[:, n] < bound).double().mean())
    assert lost <= lost_share(n) + 0.006  # three standard deviations
    assert lost >= rank / (n + 1) - 0.006
