"""One self-contained HTML page: what is on it (dataclasses), and how it becomes text and a file.

The page asks nothing of the network: styles, figures and images are inside, and a content security policy
in its head forbids the browser to load or run anything else. Every text is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import UserError
from ..files import write_text
from .pictures import Example, heat_gradient_css, heat_overlay, png_data_uri
from .tables import Cell, format_cell, format_percent, is_number

Dot = Literal["right", "misnamed", "wrong"]


@dataclass(frozen=True)
class Metric:
    """A number for the top: ``value`` is a share of 1 (shown in per cent) or ready text.

    ``guess`` is what a model that guesses would reach; it is marked on the bar under the number.
    """

    name: str
    value: float | str
    explanation: str
    guess: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of the known, or of the unknown, test images at the chosen threshold.

    ``right``: share of known images accepted under their own name, or of unknown images rejected.
    ``misnamed``: share of known images accepted under another name. The rest is wrongly rejected, or wrongly
    accepted.
    """

    known: bool
    right: float
    count: int
    misnamed: float = 0.0

    @property
    def dots(self) -> list[Dot]:
        """Return the outcome of 100 images: right first, then misnamed, then wrong."""
        right = _round_to_images(self.right)
        misnamed = min(_round_to_images(self.misnamed), 100 - right)
        counts: tuple[tuple[Dot, int], ...] = (
            ("right", right),
            ("misnamed", misnamed),
            ("wrong", 100 - right - misnamed),
        )
        return [dot for dot, count in counts for _ in range(count)]


@dataclass(frozen=True)
class Figure:
    """A drawing. ``svg`` is put on the page as it is, so it must come from this package's figures."""

    heading: str
    svg: str
    caption: str = ""
    alt: str = ""


@dataclass(frozen=True)
class ExampleGroup:
    """Images that have something in common, such as unknown images that were accepted."""

    heading: str
    explanation: str = ""
    examples: Sequence[Example] = ()


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    heading: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Page:
    """Everything a report shows, in the order it shows it. ``details``: recipe, seed, versions, command …"""

    title: str
    subtitle: str = ""
    metrics: Sequence[Metric] = ()
    outcomes: Sequence[Outcome] = ()
    figures: Sequence[Figure] = ()
    example_groups: Sequence[ExampleGroup] = ()
    tables: Sequence[Table] = ()
    details: Mapping[str, Cell] = field(default_factory=dict)


def render(page: Page) -> str:
    """Return the page as HTML. The same page gives the same bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    for table in page.tables:
        for row in table.rows:
            if len(row) != len(table.headers):
                raise UserError(
                    f"table '{table.heading}': row {list(row)} does not fit {list(table.headers)}"
                )
    environment = Environment(
        loader=PackageLoader("gradmix.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(cell=format_cell, percent=format_percent)
    environment.tests.update(number=is_number)
    has_heat = any(example.heat is not None for group in page.example_groups for example in group.examples)
    return environment.get_template("page.html.jinja").render(
        page=page,
        plain=png_data_uri,
        heated=_overlay_heat,
        heat_gradient=heat_gradient_css() if has_heat else "",
    )


def write(page: Page, path: str | Path) -> None:
    """Render ``page`` into the file ``path``, whole or not at all."""
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent} to write {path.name} into; make it first")
    write_text(path, render(page))


def _overlay_heat(example: Example) -> str:
    assert example.heat is not None
    return png_data_uri(heat_overlay(example.image, example.heat))


def _round_to_images(share: float) -> int:
    """Round a share to whole images of 100, without turning "almost" into "all" or "hardly" into "none"."""
    share = min(max(share, 0.0), 1.0) if share == share else 0.0
    return int(share * 100) if share in (0.0, 1.0) else min(max(round(share * 100), 1), 99)
