from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gradmix.errors import UserError
from gradmix.report import (
    Example,
    ExampleGroup,
    Figure,
    Metric,
    Outcome,
    Page,
    Table,
    draw_class_bars,
    draw_confusion,
    draw_score_histogram,
    make_headline,
    render,
    write,
)

EVIL = "<script>alert(1)</script>"
NAN = float("nan")
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Outline(HTMLParser):
    """Checks that tags are balanced, and collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def example(name: str = "cat", heat: bool = True) -> Example:
    image = torch.arange(3 * 8 * 8, dtype=torch.uint8).view(3, 8, 8)
    return Example(image, torch.linspace(0, 1, 64).view(8, 8) if heat else None, name, name, 0.75, True, True)


@cache
def full_page(classes: int = 3, name: str = EVIL) -> Page:
    names = [f"{name}{i}" for i in range(classes)]
    return Page(
        title=f"Report {name}",
        subtitle=f"of {name}",
        metrics=make_headline(
            accuracy=0.9731, auroc=0.9412, tnr_at_95=0.7123, oscr=0.9034, known_classes=classes
        ),
        outcomes=[Outcome(True, 0.93, 1000, 0.02), Outcome(False, 0.71, 700)],
        figures=[
            Figure(
                "Scores",
                draw_score_histogram([0.9, 0.8], [0.1], 0.5),
                "Two hills.",
                "Known right of unknown.",
            ),
            Figure(name, draw_class_bars(names, [0.5] * classes, [True] * classes), name, name),
            Figure("Matrix", draw_confusion(torch.eye(classes).numpy(), names)),
        ],
        example_groups=[
            ExampleGroup(name, name, [example(name), example(name, heat=False)]),
            ExampleGroup("Nobody", "", []),
        ],
        tables=[Table(name, [name, "AUROC"], [[n, 0.5] for n in names], name)],
        details={"command": f"gradmix evaluate {name}", name: name, "seed": 0},
    )


@pytest.mark.parametrize("classes", [0, 1, 3, 200])
def test_is_balanced_html_that_asks_nothing_of_the_network(classes: int) -> None:
    text = render(full_page(classes) if classes else Page("Empty"))
    outline = Outline(text)
    assert not outline.all("script")
    assert not outline.all("iframe")
    # Namespaces name a vocabulary; nobody fetches them.
    bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http://" not in bare
    assert "https://" not in bare
    for _, attrs in outline.tags:
        for key in ("src", "href", "xlink:href"):
            assert (attrs.get(key) or "data:").startswith(("data:", "#"))
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "default-src 'none'" in text


def test_text_from_outside_is_escaped_everywhere() -> None:
    text = render(full_page(name='"><img src=x onerror=alert(1)><script>alert(1)</script>'))
    assert "<script" not in text
    assert "<img src=x" not in text
    assert not any(key.startswith("on") for _, attrs in Outline(text).tags for key in attrs)


def test_shows_every_metric_outcome_and_detail() -> None:
    words = " ".join("".join(Outline(render(full_page())).words).split())
    for expected in (
        "97.3 %",
        "94.1 %",
        "71.2 %",
        "90.3 %",
        "Closed-set accuracy",
        "AUROC",
        "TNR@95",
        "OSCR (= OpenAUC)",
    ):
        assert expected in words
    for expected in (
        "93 accepted, right name",
        "2 accepted, wrong name",
        "5 rejected by mistake",
        "29 accepted by",
    ):
        assert expected in words
    assert f"gradmix evaluate {EVIL}" in words
    assert "1,000 tested" in words
    assert "None in this run." in words


def test_every_picture_has_words_and_every_table_header_cells() -> None:
    outline = Outline(render(full_page()))
    assert all(image["alt"] for image in outline.all("img"))
    assert len(outline.all("img")) == 3
    drawings = [div for div in outline.all("div") if div.get("role") == "img"]
    assert len(drawings) == 3
    assert all(div["aria-label"] for div in drawings)
    assert {cell["scope"] for cell in outline.all("th")} == {"row", "col"}
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_no_nan_reaches_the_reader() -> None:
    image = example().image
    page = Page(
        "x",
        metrics=[Metric("AUROC", NAN, "could not be measured"), Metric("Images", "12", "tested")],
        outcomes=[Outcome(True, NAN, 0)],
        example_groups=[
            ExampleGroup("g", "", [Example(image, torch.full((8, 8), NAN), "a", "b", NAN, False)])
        ],
        tables=[Table("t", ["a", "b"], [["x", NAN], ["y", None]])],
        details={"threshold": NAN},
    )
    words = " ".join(Outline(render(page)).words).lower()
    assert "nan" not in words.split()
    assert words.count("–") >= 5


def test_almost_is_not_all() -> None:
    assert Outcome(True, 0.9999, 10).dots.count("right") == 99
    assert Outcome(True, 1.0, 10).dots.count("right") == 100
    assert Outcome(False, 0.0001, 10).dots.count("right") == 1
    assert len(Outcome(True, 0.955, 10, 0.045).dots) == 100
    text = render(Page("x", metrics=[Metric("AUROC", 0.99999, "")]))
    assert "99.9<" in text


def test_same_page_same_bytes() -> None:
    assert render(full_page()) == render(full_page.__wrapped__())


def test_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(full_page(), path)
    before = path.read_text(encoding="utf-8")
    assert before == render(full_page())
    with pytest.raises(UserError, match="does not fit"):
        write(Page("x", tables=[Table("t", ["a", "b"], [["only one"]])]), path)
    assert path.read_text(encoding="utf-8") == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UserError, match="no folder"):
        write(full_page(), tmp_path / "nowhere" / "report.html")
