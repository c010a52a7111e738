"""Draw the figures of an evaluation: score distributions, ROC curve, training curve.

Each takes plain arrays and returns SVG text (see ``canvas``). Values that are not finite are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from .canvas import INK, KNOWN, MUTED, PARTS, UNKNOWN, draw, use_percent_axis, write_nothing_recorded
from .tables import format_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 440.0, 290.0
_BINS = 40
_POINTS = 300  # more points than this are finer than a pen stroke and only make the page heavy
_NOT_A_LOSS = {"step", "epoch", "loss", "lr", "seconds", "minutes", "images", "images_per_second"}

Array = NDArray[np.float64]


def draw_score_histogram(known_scores: ArrayLike, unknown_scores: ArrayLike, threshold: float | None) -> str:
    """Draw how the scores (higher = more likely known) of known and of unknown images are distributed.

    Both histograms share their bins and each sums to 100 % of its own group, so a group of few images
    weighs as much as a group of many. Images right of ``threshold`` are the accepted ones.
    """
    known, unknown = _finite(known_scores), _finite(unknown_scores)
    edges = _make_bins(np.concatenate([known, unknown]), threshold)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        if not known.size and not unknown.size:
            return write_nothing_recorded(axes)
        for scores, color, style, label in (
            (unknown, UNKNOWN, (0, (4, 1.5)), "unknown images"),
            (known, KNOWN, "solid", "known images"),
        ):
            if scores.size:
                shares = np.histogram(scores, edges)[0] / scores.size
                axes.stairs(shares, edges, fill=True, color=color, alpha=0.28, linewidth=0)
                axes.stairs(shares, edges, color=color, linewidth=1.8, linestyle=style, label=label)
        if threshold is not None and np.isfinite(threshold):
            axes.axvline(threshold, color=INK, linewidth=1.2)
            for word, side, shift, color in (
                ("rejected ←", "right", -5, UNKNOWN),
                ("→ accepted", "left", 5, KNOWN),
            ):
                axes.annotate(
                    word, (threshold, 1.0), xycoords=axes.get_xaxis_transform(), color=color,
                    xytext=(shift, 2), textcoords="offset points", ha=side, va="bottom",
                )  # fmt: skip
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("score (higher = more likely known)")
        axes.set_ylabel("share of the group")
        use_percent_axis(axes, "y")
        _add_legend(figure, axes)

    return draw(_WIDTH, _HEIGHT, paint)


def draw_roc(fpr: ArrayLike, tpr: ArrayLike, auroc: float) -> str:
    """Draw the ROC curve; known is positive, so ``fpr`` is the share of unknown images that slip through.

    ``fpr`` and ``tpr`` run from (0, 0) to (1, 1), one point per threshold, as ``sklearn.metrics.roc_curve``
    returns them with ``drop_intermediate=False``. The dot is the first threshold that accepts 95 % of known.
    """
    x, y = np.asarray(fpr, dtype=np.float64), np.asarray(tpr, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or x.size == 0:
        raise UserError(f"fpr and tpr must be two equally long lists, not of shape {x.shape} and {y.shape}")
    slip_at_95 = float(x[np.argmax(y >= 0.95)]) if (y >= 0.95).any() else None
    x, y = _thin_curve(x, y)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.fill_between(x, y, color=MUTED, alpha=0.13, linewidth=0)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        along: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "transform_rotates_text": True}
        axes.text(0.3, 0.24, "guessing", color=MUTED, **along)
        axes.plot(x, y, color=INK)
        # In the corner that the curve bends away from, where no text lies across it.
        x_text, y_text, y_note, side = (
            (0.97, 0.06, 0.18, "right") if auroc >= 0.5 else (0.03, 0.9, 0.73, "left")
        )
        if np.isfinite(auroc):
            axes.text(x_text, y_text, f"AUROC {format_percent(auroc)} %", ha=side, fontsize=14)
        if slip_at_95 is not None:
            axes.plot([slip_at_95], [0.95], "o", color=UNKNOWN, markersize=7, clip_on=False)
            note = f"● 95 % of known accepted,\nand {100 * slip_at_95:.0f} % of unknown"
            axes.text(x_text, y_note, note, ha=side, color=UNKNOWN)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)
        axes.set_xlabel("unknown images wrongly accepted")
        axes.set_ylabel("known images accepted")
        use_percent_axis(axes, "x")
        use_percent_axis(axes, "y")

    return draw(_WIDTH, _HEIGHT, paint)


def draw_training(history: Sequence[Mapping[str, float | str]]) -> str:
    """Draw the loss, its parts and, in a strip below, the learning rate over the steps of training.

    ``history`` has rows with ``"step"`` and ``"loss"``; other keys are parts of the loss, unless they are
    bookkeeping (``"epoch"``, ``"lr"``, ``"seconds"``, ``"images_per_second"`` …) or text (the name of a
    stage). Rows may lack a key. Long histories are averaged in groups of neighbouring rows.
    """
    keys = dict.fromkeys(key for row in history for key in row if key != "stage")  # a stage has a name
    curves = {key: _read_curve(history, key) for key in keys}
    curves = {key: course for key, course in curves.items() if course[0].size}
    parts = [key for key in curves if key not in _NOT_A_LOSS]

    def paint(figure: Figure) -> None:
        if not parts and "loss" not in curves:
            return write_nothing_recorded(figure.add_subplot())
        strips = (5, 1) if "lr" in curves else (1,)
        grid = figure.add_gridspec(len(strips), 1, height_ratios=strips)
        axes = figure.add_subplot(grid[0])
        styles: list[Any] = ["solid", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5))]
        for i, key in enumerate(parts):
            axes.plot(*curves[key], color=PARTS[i % 4], linestyle=styles[i % 4], linewidth=1.3, label=key)
        if "loss" in curves:
            alone = "o" if curves["loss"][0].size == 1 else ""  # one point makes no line
            axes.plot(*curves["loss"], color=INK, linewidth=2, marker=alone, label="loss")
        axes.set_ylabel("loss")
        axes.margins(x=0.01)
        last = axes
        if "lr" in curves:
            axes.tick_params(labelbottom=False)
            last = figure.add_subplot(grid[1], sharex=axes)
            last.plot(*curves["lr"], color=MUTED, linewidth=1.3)
            last.set_ylim(bottom=0)
            last.set_yticks([0, float(curves["lr"][1].max())])
            last.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
            last.set_ylabel("lr")
        last.set_xlabel("step")
        _add_legend(figure, axes)

    return draw(_WIDTH, _HEIGHT, paint)


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Name the curves above the axes, where no curve can run into the names."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles[::-1], labels[::-1], loc="outside upper left", ncols=min(len(labels), 4), handlelength=1.8
        )


def _finite(values: ArrayLike) -> Array:
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    return flat[np.isfinite(flat)]


def _make_bins(scores: Array, threshold: float | None) -> Array:
    """Cut the range of all scores, widened to show the threshold, into equal bins; never an empty range."""
    if threshold is not None and np.isfinite(threshold):
        scores = np.append(scores, threshold)
    if scores.size == 0:
        return np.linspace(0.0, 1.0, _BINS + 1)
    low, high = float(scores.min()), float(scores.max())
    if high - low <= 1e-9 * max(1.0, abs(low), abs(high)):
        margin = 0.5 * max(1.0, abs(low))
        low, high = low - margin, high + margin
    return np.linspace(low, high, _BINS + 1)


def _thin_curve(x: Array, y: Array) -> tuple[Array, Array]:
    """Resample a rising curve evenly along x + y, which grows on steep and on flat stretches alike."""
    if x.size <= _POINTS:
        return x, y
    along = x + y
    grid = np.linspace(along[0], along[-1], _POINTS)
    return np.interp(grid, along, x), np.interp(grid, along, y)


def _read_curve(history: Sequence[Mapping[str, float | str]], key: str) -> tuple[Array, Array]:
    """Return steps and values of one key, averaged in at most ``_POINTS`` groups of neighbours."""
    found = [(row["step"], row[key]) for row in history if key in row and "step" in row]
    rows = [(float(step), float(value)) for step, value in found if not isinstance(value, str)]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) > _POINTS:
        table = np.stack([group.mean(axis=0) for group in np.array_split(table, _POINTS)])
    return table[:, 0], table[:, 1]
