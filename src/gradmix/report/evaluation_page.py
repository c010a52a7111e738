"""The page of one open-set evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageSet, names_of
from ..evaluation import COMPARED_METRICS, FPR_NOTE, METRIC_NAMES, OpenSetResult, auroc, roc_points
from ..evaluation.open_set import accepted
from ..recognition import Recognizer
from ..views import ViewSettings
from .class_figures import draw_class_bars, draw_confusion
from .figures import draw_roc, draw_score_histogram, draw_training
from .headline import make_headline
from .page import ExampleGroup, Figure, Outcome, Page, Table
from .pictures import Example

_PER_GROUP = 8
_ALL_SETS = "All unknown images together; the numbers above are means over the unknown sets."


def evaluation_page(
    result: OpenSetResult,
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet | Sequence[ImageSet],
    history: Sequence[Mapping[str, float]],
    title: str,
    subtitle: str,
    details: Mapping[str, Any],
    unknown_names: Sequence[str] = (),
) -> Page:
    """Make the page of one evaluation: metrics, figures, examples.

    ``unknown``: one set, or several in the order of the result's. ``unknown_names``: the true classes of the
    unknown images, one per image, if they are known.
    """
    sets = [unknown] if isinstance(unknown, ImageSet) else list(unknown)
    unknown_names = list(unknown_names) or ["unknown"] * sum(map(len, sets))
    main = result.main
    fpr, tpr = roc_points(result.known.score.numpy(), result.unknown.score.numpy())
    area = auroc(result.known.score.numpy(), result.unknown.score.numpy())  # main's is the mean over sets
    figures = [
        Figure(
            "Scores",
            draw_score_histogram(result.known.score, result.unknown.score, _finite(result.threshold)),
            "Known images should lie to the right of the threshold, unknown ones to the left.",
            "Histogram of the scores of known and unknown test images",
        ),
        Figure(
            "ROC", draw_roc(fpr, tpr, area), _ALL_SETS if result.sets else "", f"ROC curve, area {area:.3f}"
        ),
        Figure(
            "Who is taken for whom",
            draw_confusion(
                _count_confusion(result, len(recognizer.class_names)), [*recognizer.class_names, "unknown"]
            ),
            "Rows: the truth. Columns: the answer, at the chosen threshold.",
            "Confusion matrix with unknown as a class",
        ),
    ]
    figures.append(
        Figure(
            "Class by class",
            draw_class_bars(*_compute_accept_rates(result, recognizer.class_names, unknown_names)),
            "Share of each class that is accepted: long bars above, short ones below are good.",
            "Share of accepted images of each known and unknown class",
        )
    )
    if history:
        growth = _describe_growth(_read_view_settings(recognizer))
        figures.append(Figure("Training", draw_training(history), growth, "Training loss against steps"))
    return Page(
        title=title,
        subtitle=subtitle,
        metrics=make_headline(
            accuracy=main["closed_set_accuracy"],
            auroc=main["auroc"],
            tnr_at_95=main["tnr_at_tpr95"],
            oscr=main["oscr"],
            known_classes=len(recognizer.class_names),
        ),
        outcomes=_count_outcomes(result),
        figures=figures,
        example_groups=_choose_examples(result, recognizer, known, sets, unknown_names),
        tables=[*make_set_tables(result), make_metrics_table(result)],
        details=details,
    )


def make_metrics_table(result: OpenSetResult) -> Table:
    """Make the table of all metrics: one row per detector, one column per metric."""
    present = [name for name in METRIC_NAMES if name in result.main]
    rows: list[list[str | float | None]] = [
        [name, *(values.get(m) for m in present)] for name, values in result.metrics.items()
    ]
    heading = f"All metrics, mean of {len(result.sets)} unknown sets" if result.sets else "All metrics"
    return Table(heading, ["score", *(METRIC_NAMES[m] for m in present)], rows, FPR_NOTE)


def make_set_tables(result: OpenSetResult) -> list[Table]:
    """Make a table per compared metric: one row per detector, one column per unknown set, and their mean."""
    tables = []
    for metric in COMPARED_METRICS if result.sets else ():
        rows: list[list[str | float | None]] = [
            [name, *values] for name, values in result.compare_sets(metric).items()
        ]
        if rows:
            heading = f"{METRIC_NAMES[metric]}, by unknown set"
            tables.append(Table(heading, ["score", *result.columns], rows))
    return tables


def _count_outcomes(result: OpenSetResult) -> list[Outcome]:
    of_known = accepted(result.known, result.threshold)
    right = (of_known == result.known_labels).double().mean().item()
    taken = (of_known != UNKNOWN).double().mean().item()
    rejected = (accepted(result.unknown, result.threshold) == UNKNOWN).double().mean().item()
    return [
        Outcome(True, right, len(of_known), misnamed=taken - right),
        Outcome(False, rejected, len(result.unknown.score)),
    ]


def _count_confusion(result: OpenSetResult, classes: int) -> Tensor:
    """Count (C+1, C+1) true and predicted classes; the last row and column are unknown."""
    truth = torch.cat([result.known_labels, torch.full_like(result.unknown.label, UNKNOWN)])
    answer = torch.cat([accepted(result.known, result.threshold), accepted(result.unknown, result.threshold)])
    truth, answer = truth.where(truth >= 0, classes), answer.where(answer >= 0, classes)
    cells = torch.bincount(truth * (classes + 1) + answer, minlength=(classes + 1) ** 2)
    return cells.view(classes + 1, classes + 1)


def _compute_accept_rates(
    result: OpenSetResult, known_names: Sequence[str], unknown_names: Sequence[str]
) -> tuple[list[str], list[float], list[bool]]:
    """Return (name, share accepted, known?) of every class that has test images."""
    accepted_known = accepted(result.known, result.threshold) != UNKNOWN
    accepted_unknown = accepted(result.unknown, result.threshold) != UNKNOWN
    classes: dict[tuple[str, bool], list[bool]] = {}
    for label, taken in zip(result.known_labels.tolist(), accepted_known.tolist(), strict=True):
        classes.setdefault((known_names[label], True), []).append(taken)
    for name, taken in zip(unknown_names, accepted_unknown.tolist(), strict=True):
        classes.setdefault((name, False), []).append(taken)
    names, is_known = [name for name, _ in classes], [known for _, known in classes]
    return names, [sum(taken) / len(taken) for taken in classes.values()], is_known


def _choose_examples(
    result: OpenSetResult,
    recognizer: Recognizer,
    known: ImageSet,
    unknown: Sequence[ImageSet],
    unknown_names: Sequence[str],
) -> list[ExampleGroup]:
    """Choose examples with the most certain right answers and the worst mistakes."""
    # Corrupted images, if they count as known, come after the clean ones, which are shown.
    k, u, t = result.known.score[: len(known)], result.unknown.score, result.threshold
    wanted = [
        ("Known and accepted", "The surest of them.", True, k >= t, True),
        ("Unknown and rejected", "The surest of them.", False, u < t, False),
        ("Known, but rejected", "Mistakes: the lowest scores first.", True, k < t, False),
        ("Unknown, but accepted", "Mistakes: the highest scores first.", False, u >= t, True),
    ]
    groups = []
    for heading, explanation, is_known, chosen, descending in wanted:
        order = (k if is_known else u).argsort(descending=descending)
        picked = order[chosen[order]][:_PER_GROUP]
        if len(picked):
            images = known.select(picked) if is_known else _select_rows(unknown, picked)
            truths = names_of(images) if is_known else [unknown_names[i] for i in picked.tolist()]
            groups.append(
                ExampleGroup(heading, explanation, _make_examples(recognizer, images, truths, is_known))
            )
    return groups


def _select_rows(sets: Sequence[ImageSet], rows: Tensor) -> ImageSet:
    """Return a few images by their numbers in all sets, one after the other; the sets are not copied."""
    ends = torch.tensor([len(images) for images in sets]).cumsum(0)
    where = torch.bucketize(rows, ends, right=True).tolist()
    starts = [0, *ends.tolist()]
    found = [sets[i].select([row - starts[i]]) for i, row in zip(where, rows.tolist(), strict=True)]
    pixels = torch.cat([images.images[:] for images in found])
    return ImageSet(pixels, torch.full((len(rows),), UNKNOWN), ())


def _make_examples(
    recognizer: Recognizer, images: ImageSet, truths: Sequence[str], is_known: bool
) -> list[Example]:
    shown = recognizer.convert(images)
    answers = recognizer.predict(images)
    has_maps = bool(getattr(recognizer.network.encoder, "layer_names", {}))
    heat = list(recognizer.heat_maps(images)) if has_maps else [None] * len(shown)
    return [
        Example(
            shown.images[i], heat[i], truths[i], name, float(answers.score[i]), name != "unknown", is_known
        )
        for i, name in enumerate(answers.names())
    ]


def _read_view_settings(recognizer: Recognizer) -> ViewSettings:
    """Return the sizes of the views in training, as far as the recipe has them."""
    names = ("image_size", "start_size", "grow_after", "grow_until")
    return ViewSettings(**{name: recognizer.recipe[name] for name in names if name in recognizer.recipe})


def _describe_growth(views: ViewSettings) -> str:
    """Explain the jumps of the loss that come from growing views; empty where views do not grow."""
    sizes = views.sizes()
    if len(sizes) == 1:
        return ""
    shares = list(sizes.values())
    begins, ends = f"{100 * shares[0]:.0f}", f"{100 - 100 * shares[-1]:.0f}"
    when = f"after {begins}" if begins == ends else f"between {begins} and {ends}"
    return (
        f"The views grow from {min(sizes)} to {max(sizes)} pixels {when} % of the steps; "
        "there the loss rises, for the network meets larger objects."
    )


def _finite(value: float) -> float | None:
    return value if value > float("-inf") else None
