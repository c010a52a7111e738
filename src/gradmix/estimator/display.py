"""What a notebook shows of answers and explanations: pictures inside the HTML, every name escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import ImageSet
from ..recognition import Explanation
from ..report.explanation_page import explanation_png, verdict
from ..report.pictures import png_data_uri

_MOST_ROWS = 50
_MOST_EXPLANATIONS = 10
_SIDE = 64  # pixels of a picture in a table
_COLUMNS = ("image", "label", "nearest", "score", "threshold", "p_value")
_KNOWN, _UNKNOWN = "#0072b2", "#c65400"


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """The answers for N images: ``label`` (N,), ``nearest`` (N,) known class, ``score``, ``threshold``, …

    … and ``p_value``: how unusual each is for a known image.

    A notebook shows it as a table with small pictures. ``table.rows()`` is a list of dicts, ready for
    ``pandas.DataFrame``.
    """

    images: ImageSet
    label: NDArray[Any]
    nearest: NDArray[Any]
    score: NDArray[np.float64]
    threshold: NDArray[np.float64]
    p_value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which images were named, (N,)."""
        return np.asarray(self.score >= self.threshold)

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per image."""
        names = self.images.sources or ("",) * len(self)
        columns = zip(
            names, self.label.tolist(), self.nearest.tolist(), self.score.tolist(), self.threshold.tolist(),
            self.p_value.tolist(), strict=True,
        )  # fmt: skip
        return [dict(zip(_COLUMNS, row, strict=True)) for row in columns]

    def __repr__(self) -> str:
        found = [_COLUMNS]
        for i, row in enumerate(self.rows()[:_MOST_ROWS]):
            found.append(
                (
                    row["image"] or str(i),
                    str(row["label"]),
                    str(row["nearest"]),
                    f"{row['score']:.4f}",
                    _format_threshold(row["threshold"]),
                    f"{row['p_value']:.2g}",
                )
            )
        widths = [max(len(row[column]) for row in found) for column in range(len(_COLUMNS))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in found
        ]
        return "\n".join([*lines, *_count_more(len(self), _MOST_ROWS)])

    def _repr_html_(self) -> str:
        cell = 'style="text-align:left;padding:2px 10px"'
        head = "".join(f"<th {cell}>{name}</th>" for name in ("", *_COLUMNS))
        lines = [f"<table><thead><tr>{head}</tr></thead><tbody>"]
        for i, (row, known) in enumerate(zip(self.rows()[:_MOST_ROWS], self.known.tolist(), strict=False)):
            picture = png_data_uri(self.images.images[i], smallest=_SIDE, largest=2 * _SIDE)
            color = _KNOWN if known else _UNKNOWN
            texts = (
                escape(row["image"] or str(i)),
                f'<b style="color:{color}">{escape(str(row["label"]))}</b>',
                escape(str(row["nearest"])),
                f"{row['score']:.4f}",
                _format_threshold(row["threshold"]),
                f"{row['p_value']:.2g}",
            )
            shown = f'<img src="{picture}" width="{_SIDE}" height="{_SIDE}" alt="">'
            lines.append("<tr>" + "".join(f"<td {cell}>{text}</td>" for text in (shown, *texts)) + "</tr>")
        lines.append("</tbody></table>")
        return "\n".join([*lines, *(f"<p>{line}</p>" for line in _count_more(len(self), _MOST_ROWS))])


@dataclass(frozen=True, eq=False)
class ShownExplanation(Explanation):
    """An explanation that a notebook shows as a picture: heat map, verdict, nearest training images."""

    def __repr__(self) -> str:
        source = f"{self.source}: " if self.source else ""
        return f"<Explanation {source}{verdict(self)}>"

    def _repr_png_(self) -> bytes:
        return explanation_png(self)


class ExplanationList(list[ShownExplanation]):
    """Explanations, one per image; a notebook shows the pictures of the first ten."""

    @classmethod
    def of(cls, explanations: Iterable[Explanation]) -> ExplanationList:
        """Return the explanations, made to be shown."""
        names = [field.name for field in fields(Explanation)]
        return cls(ShownExplanation(**{name: getattr(e, name) for name in names}) for e in explanations)

    def _repr_html_(self) -> str:
        import base64

        lines = []
        for explanation in self[:_MOST_EXPLANATIONS]:
            picture = base64.b64encode(explanation._repr_png_()).decode("ascii")
            lines.append(
                f'<p><img src="data:image/png;base64,{picture}" alt="{escape(verdict(explanation))}"></p>'
            )
        return "\n".join([*lines, *(f"<p>{line}</p>" for line in _count_more(len(self), _MOST_EXPLANATIONS))])


def _format_threshold(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none"


def _count_more(count: int, shown: int) -> list[str]:
    return [f"… and {count - shown} more"] if count > shown else []
