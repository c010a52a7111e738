"""Draw figures per class: how much of each is accepted, and which classes are confused.

They stay readable with 200 classes: the bars show the hardest ones, the matrix drops its numbers and names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from .canvas import INK, KNOWN, MUTED, UNKNOWN, draw, shorten, use_percent_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_BARS = 16  # of known and of unknown classes each
_MAX_NUMBERS = 12  # classes up to which the cells of the matrix have room for their percentages
_MAX_NAMES = 30


def draw_class_bars(names: Sequence[str], accept_rates: ArrayLike, known: Sequence[bool]) -> str:
    """Draw the share of each class's images that was accepted; known classes above, unknown ones below.

    ``known[i]`` says whether class i was trained on. Bars of known classes should be long, those of unknown
    classes short; of more than 16 in a group the 16 that are worst in this sense are shown.
    """
    rates = np.asarray(accept_rates, dtype=np.float64)
    if not len(names) == len(rates) == len(known):
        raise UserError(f"{len(names)} names, {len(rates)} rates and {len(known)} flags; give one per class")
    groups = [
        _choose_hardest([i for i in range(len(names)) if known[i]], rates, worst_first=1.0),
        _choose_hardest([i for i in range(len(names)) if not known[i]], rates, worst_first=-1.0),
    ]
    totals = [sum(map(bool, known)), len(names) - sum(map(bool, known))]
    rows = sum(len(group) for group in groups)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        ticks: list[tuple[float, str]] = []
        y = 0.0
        for group, total, kind, color in zip(
            groups, totals, ("known", "unknown"), (KNOWN, UNKNOWN), strict=True
        ):
            if not group:
                continue
            title = f"{kind} classes" if len(group) == total else f"{len(group)} hardest of {total} {kind}"
            axes.text(0, y, title, color=color, va="center", ha="left", fontweight="bold")
            for i in group:
                y += 1
                axes.barh(y, 1, height=0.7, color=MUTED, alpha=0.12, linewidth=0)
                axes.barh(y, rates[i], height=0.7, color=color, linewidth=0)
                axes.text(1.02, y, f"{100 * rates[i]:.0f} %", va="center", ha="left", fontsize=11)
                ticks.append((y, shorten(names[i])))
            y += 1.3
        axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max(y, 1.0) - 0.6, -0.7)
        axes.set_xlim(0, 1.12)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("share of the class that was accepted")
        use_percent_axis(axes, "x")

    # As tall as the matrix beside it while the bars, at 17 to 28 points each, allow it.
    lines = rows + 2.3
    return draw(440.0, 60.0 + lines * min(max(360.0 / lines, 17.0), 28.0), paint)


def draw_confusion(matrix: ArrayLike, names: Sequence[str]) -> str:
    """Draw a confusion matrix of counts; rows are true classes, columns predictions.

    ``matrix`` is (R, R) and ``names`` has R entries; the class called ``"unknown"``, if any, is drawn in its
    own color. A cell's shade is its share of its row, so rare classes show as clearly as frequent ones.
    """
    counts = np.asarray(matrix, dtype=np.float64)
    size = len(names)
    if counts.shape != (size, size):
        raise UserError(f"a confusion matrix of {size} names must be {size} × {size}, not {counts.shape}")
    counts = np.nan_to_num(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)
    is_unknown = np.array([name == "unknown" for name in names], dtype=bool)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.imshow(_shade(shares, is_unknown), interpolation="none", aspect="equal")
        for r, c in zip(*np.nonzero(shares >= 0.005), strict=True) if size <= _MAX_NUMBERS else ():
            weight = "bold" if r == c else "normal"
            axes.text(c, r, f"{100 * shares[r, c]:.0f}", ha="center", va="center", fontsize=11,
                      color=INK, fontweight=weight)  # fmt: skip
        if size <= _MAX_NAMES:
            labels = [shorten(name, 14) for name in names]
            # About 6.5 points per letter, and 340 points for all columns.
            upright = 6.5 * size * max((len(label) for label in labels), default=0) > 340
            font = min(11.5, 280 / max(size, 1))
            axes.set_xticks(range(size), labels, rotation=90 if upright else 0, fontsize=font)
            axes.set_yticks(range(size), labels, fontsize=font)
            for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
                for label, unknown in zip(ticks, is_unknown, strict=True):
                    label.set_color(UNKNOWN if unknown else INK)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set(visible=True, linewidth=0.6)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")

    return draw(440.0, 420.0, paint)


def _choose_hardest(group: list[int], rates: NDArray[np.float64], worst_first: float) -> list[int]:
    """Leave out classes without a rate; keep the order of a short group, the worst of a long one."""
    group = [i for i in group if np.isfinite(rates[i])]
    if len(group) <= _MAX_BARS:
        return group
    return sorted(group, key=lambda i: worst_first * rates[i])[:_MAX_BARS]


def _shade(shares: NDArray[np.float64], is_unknown: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Colour the cells (R, R, 4): column's color, share as opacity.

    A picture can't use the page's variables, so these are tones between those of the light and the dark page,
    and the opacity ends at 0.65, where both dark and light figures can be read on them.
    """
    rgba = np.empty((*shares.shape, 4))
    rgba[..., :3] = np.where(is_unknown[None, :, None], (0.89, 0.46, 0.12), (0.17, 0.53, 0.78))
    rgba[..., 3] = 0.65 * np.sqrt(np.clip(shares, 0.0, 1.0))
    return rgba
