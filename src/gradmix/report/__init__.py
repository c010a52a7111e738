"""Results as pictures, tables and one self-contained HTML page."""

from __future__ import annotations

from .class_figures import confusion_figure, per_class_bars
from .figures import roc_figure, score_histogram, training_curve
from .headline import headline_metrics
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
    "confusion_figure",
    "contact_sheet",
    "headline_metrics",
    "heat_overlay",
    "markdown_table",
    "per_class_bars",
    "png",
    "png_data_uri",
    "render",
    "roc_figure",
    "score_histogram",
    "training_curve",
    "write",
]
