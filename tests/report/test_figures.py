from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from gradmix.errors import UserError
from gradmix.report import draw_class_bars, draw_confusion, draw_roc, draw_score_histogram, draw_training
from gradmix.report.canvas import shorten

EVIL = "<script>alert(1)</script>"
HISTORY = [
    {"step": i, "loss": 3.0 / (i + 1), "supcon": 1.0 / (i + 1), "mixed": 0.5, "lr": 1e-3} for i in range(20)
]


def draw_all() -> dict[str, str]:
    noise = np.random.default_rng(0)
    return {
        "histogram": draw_score_histogram(torch.linspace(0.5, 1, 50), torch.linspace(0, 0.7, 30), 0.6),
        "histogram without threshold": draw_score_histogram([0.1, 0.2], [0.3], None),
        "roc": draw_roc(np.linspace(0, 1, 5000), np.linspace(0, 1, 5000) ** 0.2, 0.83),
        "training": draw_training(HISTORY),
        "bars": draw_class_bars(["a", "b", EVIL], [0.9, 0.8, 0.1], [True, True, False]),
        "bars of 200": draw_class_bars(
            [f"c{i}" for i in range(200)], noise.random(200), [i < 20 for i in range(200)]
        ),
        "confusion": draw_confusion([[5, 1, 0], [0, 6, 0], [1, 1, 9]], ["a", EVIL, "unknown"]),
        "confusion of 200": draw_confusion(noise.poisson(1, (200, 200)), [f"c{i}" for i in range(200)]),
        "one class": draw_confusion([[3]], ["a"]),
    }


@cache
def every_figure() -> dict[str, str]:
    return draw_all()


def text_of(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


def test_the_same_figure_is_the_same_bytes() -> None:
    assert every_figure() == draw_all()


def test_figures_scale_and_bring_no_background_no_script_and_no_address() -> None:
    for name, svg in every_figure().items():
        check_is_inline(name, svg)


def check_is_inline(name: str, svg: str) -> None:
    root = ElementTree.fromstring(svg)  # well-formed
    assert "viewBox" in root.attrib, name
    assert "width" not in root.attrib, name
    assert "<script" not in svg, name
    assert "<metadata" not in svg, name
    assert "<style" not in svg, name
    assert "nan" not in re.sub(r"base64,[^\"]*", "", svg).lower(), name
    addresses = set(re.findall(r"https?://[^\s\"<]+", svg))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, name
    assert "#ffffff" not in svg, name
    assert len(svg) < 200_000, name


def test_colours_are_left_to_the_page() -> None:
    svg = every_figure()["histogram"]
    assert "var(--known, #0072b2)" in svg
    assert "var(--unknown, #d55e00)" in svg
    assert "#010203" not in svg


def test_two_figures_on_one_page_share_no_identifier() -> None:
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in every_figure().values()]
    assert sum(map(len, ids)) == len(set().union(*ids))
    for svg, own in zip(every_figure().values(), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= own


def test_names_are_escaped_and_never_read_as_formulas() -> None:
    svg = draw_class_bars([EVIL, r"$\frac{1$", "猫", "a\x00b\n c"], [0.1, 0.2, 0.3, 0.4], [True] * 4)
    words = text_of(svg)
    assert "<script>alert(1)<…" in words
    assert r"$\frac{1$" in words
    assert "猫" in words
    assert "a b c" in words


def test_values_that_are_not_finite_are_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    assert draw_score_histogram([0.1, nan, 0.9], [inf, 0.2], 0.5) == draw_score_histogram(
        [0.1, 0.9], [0.2], 0.5
    )
    assert draw_training([*HISTORY, {"step": 20, "loss": nan}]) == draw_training(HISTORY)
    assert "b" not in text_of(draw_class_bars(["a", "b"], [0.5, nan], [True, True])).split()


def test_the_name_of_a_stage_is_no_curve() -> None:
    staged = [{**row, "stage": "classify"} for row in HISTORY]
    assert draw_training(staged) == draw_training(HISTORY)


def test_nothing_to_show_is_said() -> None:
    assert "nothing recorded" in text_of(draw_score_histogram([], [float("nan")], None))
    assert "nothing recorded" in text_of(draw_training([]))
    assert "nothing recorded" in text_of(draw_training([{"step": 1, "loss": float("nan")}]))


def test_edges_do_not_break() -> None:
    assert draw_score_histogram([1.0, 1.0], [1.0], 1.0)
    assert draw_score_histogram([1.0], [], None)
    assert draw_training([{"step": 1, "loss": 2.0}, {"step": 2, "supcon": 1.0}])
    assert draw_confusion(np.zeros((2, 2)), ["a", "unknown"])
    assert draw_class_bars([], [], [])


def test_the_names_of_stages_are_not_drawn() -> None:
    staged: Any = [{**row, "stage": "first"} for row in HISTORY]
    assert draw_training(staged) == draw_training(HISTORY)


def test_the_roc_names_the_share_of_unknown_at_95_percent_of_known() -> None:
    words = text_of(draw_roc([0, 0, 0.2, 0.2, 1], [0, 0.8, 0.8, 0.96, 1], 0.9))
    assert "and 20 % of unknown" in words
    assert "AUROC 90.0 %" in words


def test_a_long_history_is_thinned_and_bookkeeping_is_not_a_loss() -> None:
    long = [{"step": i, "loss": 1.0, "images_per_second": 1e4, "epoch": 1} for i in range(50_000)]
    svg = draw_training(long)
    assert len(svg) < 30_000
    assert "images_per_second" not in svg


def test_many_classes_are_reduced_to_the_hardest() -> None:
    rates = np.linspace(0, 1, 100)
    words = text_of(
        draw_class_bars([f"c{i}" for i in range(100)], rates, [i >= 50 for i in range(100)])
    ).split()
    assert "c50" in words  # the least accepted known class
    assert "c49" in words  # the most accepted unknown class
    assert "c99" not in words
    assert "c0" not in words


def test_mismatched_inputs_are_named() -> None:
    with pytest.raises(UserError, match="2 names, 1 rates"):
        draw_class_bars(["a", "b"], [0.1], [True, True])
    with pytest.raises(UserError, match="2 × 2"):
        draw_confusion(np.zeros((3, 3)), ["a", "b"])
    with pytest.raises(UserError, match="fpr and tpr"):
        draw_roc([0, 1], [0, 0.5, 1], 0.5)


def test_matplotlib_settings_and_pyplot_are_left_alone() -> None:
    code = """
import sys, gradmix.report
assert "matplotlib" not in sys.modules and "jinja2" not in sys.modules
import matplotlib
before = matplotlib.rcParams.copy()
gradmix.report.draw_score_histogram([1.0], [0.0], 0.5)
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_foreign_style_changes_nothing() -> None:
    import matplotlib

    plain = draw_score_histogram([1.0], [0.0], 0.5)
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30}):
        assert draw_score_histogram([1.0], [0.0], 0.5) == plain


def test_shorten() -> None:
    assert shorten("cat") == "cat"
    assert len(shorten("x" * 50, 10)) == 10
