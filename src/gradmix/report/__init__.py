"""Results as pictures, tables and one self-contained HTML page."""

from __future__ import annotations

from .class_figures import draw_class_bars, draw_confusion
from .figures import draw_roc, draw_score_histogram, draw_training
from .headline import make_headline
from .page import ExampleGroup, Figure, Metric, Outcome, Page, Table, render, write
from .pictures import Example, contact_sheet, heat_overlay, png, png_data_uri
from .tables import markdown_table

__all__ = [
    "Example",
    "ExampleGroup",
    "Figure",
    "Metric",
    "Outcome",
    "Page",
    "Table",
    "contact_sheet",
    "draw_class_bars",
    "draw_confusion",
    "draw_roc",
    "draw_score_histogram",
    "draw_training",
    "heat_overlay",
    "make_headline",
    "markdown_table",
    "png",
    "png_data_uri",
    "render",
    "write",
]
