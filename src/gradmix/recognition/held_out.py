"""What a model makes of the known images that were held out of its training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .calibration import split_held_out

if TYPE_CHECKING:
    from .recognizer import Recognizer


class HeldOutSummary(NamedTuple):
    """Counts of held-out images: all, taken for their own class, accepted, and accepted as their class.

    The threshold was set with these very images, so the share of accepted ones is near the rate asked for.
    """

    images: int
    right: int
    accepted: int
    accepted_right: int


def summarize_held_out(recognizer: Recognizer) -> HeldOutSummary | None:
    """Let the model decide about its held-out images; None where there are none.

    Of a score that learned from every second of them, the others are counted.
    """
    detector = recognizer.decision.detector
    held_out = recognizer.held_out_outputs(detector)
    if held_out is None:
        return None
    _, unseen = split_held_out(detector, held_out)
    assert unseen is not None
    found = recognizer.decision.decide(unseen)
    return HeldOutSummary(
        len(unseen.labels),
        int((found.nearest == unseen.labels).sum()),
        int(found.accepted.sum()),
        int((found.label == unseen.labels).sum()),
    )
