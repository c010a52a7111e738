"""Figures as files: whole SVG documents that need no page around them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from gradmix.experiments.report.figures import curves_figure, rows_figure
from gradmix.report.figure_files import write_figures
from gradmix.report.page import Figure

CURVE = Figure("CIFAR+10: AUROC against steps", curves_figure({"a": [([1, 2], [0.5, 0.6])]}, "step", "AUROC"))
ROWS = Figure("Rows", rows_figure(["a"], [1.0], [0.1], [None], "AUROC"))


def test_each_figure_is_a_document_of_its_own(tmp_path: Path) -> None:
    write_figures([CURVE, ROWS], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cifar-plus-10-auroc-against-steps.svg", "rows.svg"]
    for file in tmp_path.iterdir():
        root = ElementTree.fromstring(file.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert float(root.attrib["width"]) > 100
        assert "inherit" not in file.read_text()


def test_figures_of_before_are_removed(tmp_path: Path) -> None:
    write_figures([CURVE, ROWS], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write_figures([ROWS], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "rows.svg"]
