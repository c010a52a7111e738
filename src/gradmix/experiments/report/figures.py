"""Figures of an experiment: results against steps, rows side by side, corruptions, S_M(τ), maps in rows."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...report.canvas import INK, KNOWN, MUTED, PARTS, UNKNOWN, draw, shorten
from ...report.pictures import contact_sheet, heat_overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[Sequence[float], Sequence[float]]

_WIDTH = 440.0
_COLOURS = (*PARTS, KNOWN, UNKNOWN, MUTED)  # of all but the last arm, which is the one in question
_STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


def curves_figure(
    curves: Mapping[str, Sequence[Curve]], x: str, y: str, log_x: bool = False, percent: bool = True
) -> str:
    """Draw one line per arm: the mean over its trials, with a band of ± one standard deviation."""
    scale = 100.0 if percent else 1.0

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, (label, trials) in enumerate(curves.items()):
            whole = [curve for curve in trials if len(curve[0]) == max(len(c[0]) for c in trials)]
            if not whole or not whole[0][0]:
                continue
            at = np.asarray(whole[0][0], dtype=np.float64)
            values = scale * np.asarray([curve[1] for curve in whole], dtype=np.float64)
            last = i == len(curves) - 1
            mean, colour = values.mean(0), INK if last else _COLOURS[i % len(_COLOURS)]
            marker = "o" if len(at) == 1 else ""
            look: dict[str, Any] = {"linestyle": "solid" if last else _STYLES[(i + 1) % len(_STYLES)]}
            look["linewidth"] = 2.2 if last else 1.5
            axes.plot(at, mean, color=colour, marker=marker, label=shorten(label, 40), **look)
            if len(whole) > 1:
                spread = values.std(0, ddof=1)
                axes.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
        if log_x:
            axes.set_xscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(f"{y}, %" if percent else y)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = 1 if max(map(len, labels)) > 24 else 2 if len(labels) < 5 else 3
            figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=1.8)

    return draw(_WIDTH, 290.0 + 9.0 * len(curves), paint)


def rows_figure(
    labels: Sequence[str],
    means: Sequence[float | None],
    stds: Sequence[float | None],
    paper: Sequence[float | None],
    x: str,
) -> str:
    """Draw a dot and its standard deviation per row; a ring where the paper prints a number."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, (mean, std, printed) in enumerate(zip(means, stds, paper, strict=True)):
            if printed is not None:
                axes.plot([printed], [i], "o", mfc="none", mec=MUTED, markersize=9)
            if mean is not None:
                axes.errorbar([mean], [i], xerr=[std or 0.0], fmt="o", color=INK, capsize=3, markersize=6)
                axes.annotate(
                    f"{mean:.1f}", (mean, i), xytext=(0, 7), textcoords="offset points", ha="center"
                )
        if any(value is not None for value in paper):
            axes.plot([], [], "o", mfc="none", mec=MUTED, markersize=9, label="paper")
            axes.plot([], [], "o", color=INK, markersize=6, label="here")
            figure.legend(loc="outside upper left", ncols=2)
        _rows_axis(axes, labels)
        axes.set_xlabel(x)

    return draw(_WIDTH, 90.0 + 34.0 * len(labels), paint)


def corruptions_figure(drops: Mapping[str, Mapping[str, float]], order: Sequence[str]) -> str:
    """Draw bars of the mean drop of accuracy, in points: one group per corruption, one bar per arm."""
    height = 0.8 / max(1, len(drops))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, (label, row) in enumerate(drops.items()):
            at = [row_number + height * (i - (len(drops) - 1) / 2) for row_number in range(len(order))]
            values = [100 * row[name] for name in order]
            axes.barh(at, values, height=height, color=(MUTED, *PARTS)[i % 5], label=label, linewidth=0)
        _rows_axis(axes, [name.replace("_", " ") for name in order])
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_xlabel("accuracy lost, points")
        figure.legend(loc="outside upper left", ncols=2)

    return draw(_WIDTH, 120.0 + 22.0 * len(order), paint)


def maps_figure(images: Tensor, heats: Mapping[str, Tensor]) -> str:
    """Draw images (N, C, H, W); below, one row per arm with its maps (N, h, w) laid over them.

    An arm of another image size has maps of that size: they are stretched to the images shown.
    """
    size = images.shape[-2:]
    fitted = (F.interpolate(heat[:, None], size=size, mode="bilinear")[:, 0] for heat in heats.values())
    rows = [images.expand(-1, 3, -1, -1), *(heat_overlay(images, heat) for heat in fitted)]
    scale = max(1, 64 // images.shape[-1])
    sheet = contact_sheet(torch.cat(rows), columns=len(images), scale=scale)
    tile = images.shape[-1] * scale + 4
    left, width, height = 96, len(images) * tile, len(rows) * tile
    names = "".join(
        f'<text x="0" y="{(i + 0.55) * tile:.0f}" font-size="13" fill="currentColor">{name}</text>'
        for i, name in enumerate(["image", *(_remove_markup(label) for label in heats)])
    )
    data = base64.b64encode(sheet).decode("ascii")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width} {height}" style="width: 100%">'
        f'{names}<image x="{left}" y="0" width="{width}" height="{height}" '
        f'style="image-rendering: pixelated" href="data:image/png;base64,{data}"/></svg>'
    )


def _rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, 30) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _remove_markup(label: str) -> str:
    """Remove from a label what could end the SVG that it stands in."""
    return "".join(c for c in shorten(label, 14) if c not in "<>&\"'")
