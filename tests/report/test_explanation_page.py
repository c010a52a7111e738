from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from PIL import Image

from gradmix.recognition import ClassEvidence, Explanation, Neighbour
from gradmix.report.explanation_page import explanation_html, explanation_png, verdict


def explanation(
    channels: int = 3, picture: bool = True, score: float = 2.0, name: str = "cat", source: str = "new/a.jpg"
) -> Explanation:
    g = torch.Generator().manual_seed(0)
    image = torch.randint(0, 255, (channels, 20, 20), generator=g, dtype=torch.uint8)
    near = Neighbour(3, 0.9, "cat/3.jpg", image if picture else None)
    evidence = (ClassEvidence(name, 0.9, (near, near)), ClassEvidence("dog", 0.5, (near,)))
    label = name if score >= 1.5 else "unknown"
    return Explanation(image, source, label, score, 1.5, torch.rand(20, 20, generator=g), evidence)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("picture", [True, False])
def test_the_picture_is_a_picture(channels: int, picture: bool) -> None:
    content = explanation_png(explanation(channels, picture))
    assert content == explanation_png(explanation(channels, picture))
    with Image.open(io.BytesIO(content)) as image:
        assert image.size[0] >= 400
        assert image.size[1] >= 400


def test_the_verdict_is_in_words() -> None:
    known, unknown = replace(explanation(), p_value=0.62), replace(explanation(score=1.0), p_value=0.005)
    assert verdict(known) == "cat: ordinary, 62 of 100 known images look as unusual (p = 0.62)"
    sentence = "unknown: most like cat, but only 1 in 200 known images looks as unusual (p = 0.005)"
    assert verdict(unknown) == sentence
    assert sentence in explanation_html([unknown], "Why")


def test_names_are_escaped_and_nothing_is_fetched() -> None:
    odd = '<script>alert("x")</script>'
    page = explanation_html([explanation(name=odd, source=odd), explanation(picture=False)], odd)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page == explanation_html([explanation(name=odd, source=odd), explanation(picture=False)], odd)


def test_odd_names_can_be_drawn() -> None:
    for name in ("", "猫", "a" * 500, "two\nlines"):
        assert explanation_png(explanation(name=name, source=name)).startswith(b"\x89PNG")
