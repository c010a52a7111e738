"""Make the four numbers at the top of a report."""

from __future__ import annotations

from .page import Metric


def make_headline(
    *, accuracy: float, auroc: float, tnr_at_95: float, oscr: float, known_classes: int
) -> tuple[Metric, ...]:
    """Return closed-set accuracy, AUROC, TNR@95 and OSCR (each a share of 1) with what they mean.

    A guessing model names one of C classes, ranks at random (AUROC ½), rejects 5 % of the unknown where it
    accepts 95 % of the known, and has an OSCR of 1/(2C).

    >>> [m.guess for m in make_headline(accuracy=1, auroc=1, tnr_at_95=1, oscr=1, known_classes=4)]
    [0.25, 0.5, 0.05, 0.125]
    """
    return (
        Metric(
            "Closed-set accuracy",
            accuracy,
            "of the known images get their right name, before any rejection",
            1 / known_classes,
        ),
        Metric("AUROC", auroc, "is how often a known image scores above an unknown one", 0.5),
        Metric(
            "TNR@95", tnr_at_95, "of the unknown are turned away while 95\u00a0% of the known get in", 0.05
        ),
        Metric(
            "OSCR (= OpenAUC)",
            oscr,
            "of the known are let in and named right, averaged over all rates of unknown let in",
            0.5 / known_classes,
        ),
    )
