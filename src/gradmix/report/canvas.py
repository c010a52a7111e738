"""From matplotlib to an SVG that takes its colors and its font from the page around it.

Figures are drawn in placeholder colors, which ``draw`` exchanges for CSS variables with a fallback. So one
and the same figure follows the page into dark mode and onto paper, and still works as a file of its own.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue and vermilion of Okabe and Ito: told apart with every common kind of color blindness.
KNOWN = "#0072b2"
UNKNOWN = "#d55e00"
INK = "#010203"
MUTED = "#010204"
# Further lines of a figure (parts of a loss); never the two above, which always mean known and unknown.
PARTS = ("#009e73", "#cc79a7", "#8c6d1f", "#6f5fb5")

_CSS = {
    KNOWN: "var(--known, #0072b2)",
    UNKNOWN: "var(--unknown, #d55e00)",
    INK: "currentColor",
    MUTED: "var(--muted, #6b7280)",
    PARTS[0]: "var(--part-1, #009e73)",
    PARTS[1]: "var(--part-2, #cc79a7)",
    PARTS[2]: "var(--part-3, #8c6d1f)",
    PARTS[3]: "var(--part-4, #6f5fb5)",
}

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, in the page's own font, a tenth of the bytes
    "svg.hashsalt": "gradmix",  # identifiers from content, not from a clock: same input, same bytes
    "text.parse_math": False,  # a class may be called "$5 note$"
    "font.size": 12,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "axes.labelsize": 12,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}


def draw(width: float, height: float, paint: Callable[[Figure], None]) -> str:
    """Return what ``paint`` puts on an empty figure of ``width`` × ``height`` points, as inline SVG.

    The same painting gives the same bytes. The SVG has a ``viewBox`` and no size, so it fills its container.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    # "default" first: somebody's own matplotlibrc must not change the report.
    with matplotlib.style.context(["default", _SETTINGS]), warnings.catch_warnings():
        # The reader's browser draws the text, and has the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        paint(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue())


def use_percent_axis(axes: Axes, which: str) -> None:
    """Label the ``"x"`` or ``"y"`` axis, which runs from 0 to 1, from 0 to 100 %."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda share, _: f"{100 * share:.3g} %")


def write_nothing_recorded(axes: Axes) -> None:
    """Put words in the place of empty axes, which would look like a fault."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing recorded", ha="center", va="center", color=MUTED, transform=axes.transAxes)


def shorten(name: str, limit: int = 18) -> str:
    """Return ``name`` on one line and in at most ``limit`` characters.

    >>> shorten("greater  spotted eagle owl", 15)
    'greater spotte…'
    """
    name = "".join(c if c.isprintable() else " " for c in name)
    name = " ".join(name.split())
    return name if len(name) <= limit else name[: limit - 1].rstrip() + "…"


def _inline(svg: str) -> str:
    """Drop what only a file needs, make identifiers unique on a page, and put CSS colors in."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    # Its rule names "*", so on a page it would reach every other element as well.
    svg = re.sub(r"\s*<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(
        r' width="[^"]*" height="[^"]*"', ' style="stroke-linejoin: round; width: 100%"', svg, count=1
    )
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub("|".join(_CSS), lambda match: _CSS[match[0]], svg)
    return _make_ids_unique(svg)


def _make_ids_unique(svg: str) -> str:
    """Keep only identifiers that something refers to, with a prefix made of the figure's content."""
    prefix = "f" + hashlib.sha256(svg.encode()).hexdigest()[:8] + "-"
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)
