"""What a notebook shows of predictions and explanations."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from gradmix import OpenSetClassifier
from gradmix.data import as_images
from tests.test_estimator import arrays, quick
from tests.training.tiny import CLASSES

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


class Tags(HTMLParser):
    """What a browser makes of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "<script>alert('x')</script> \"&"


def test_a_table_of_predictions(fitted: OpenSetClassifier, folders: Path) -> None:
    table = fitted.predict_table(folders / "others")
    assert np.array_equal(table.label, fitted.predict(folders / "others"))
    assert np.array_equal(table.score, fitted.score_samples(folders / "others"))
    assert np.array_equal(table.known, table.label != "unknown")
    assert set(table.nearest) <= set(CLASSES)
    rows = table.rows()
    assert pd.DataFrame(rows).columns.tolist() == [
        "image",
        "label",
        "nearest",
        "score",
        "threshold",
        "p_value",
    ]
    assert rows[0]["image"] == str(folders / "others" / "0.png")
    lines = repr(table).splitlines()
    assert len(lines) == 13
    assert lines[0].split() == ["image", "label", "nearest", "score", "threshold", "p_value"]
    assert lines[1].split()[1] == table.label[0]
    html = Tags(table._repr_html_())
    pictures = [attributes for tag, attributes in html.tags if tag == "img"]
    assert len(pictures) == 12
    source = str(pictures[0]["src"])
    assert source.startswith("data:image/png;base64,")
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
    first = table.images.images[0].permute(1, 2, 0).numpy()
    assert np.array_equal(shown[::4, ::4], first)  # 16 pixels, each drawn as 4 × 4
    assert f"{table.score[0]:.4f}" in html.text
    asks = [str(v) for _, attributes in html.tags for k, v in attributes.items() if k in ("src", "href")]
    assert all(address.startswith("data:") for address in asks)  # nothing is asked of other hosts
    assert not re.search(r"<script|<link|url\(", table._repr_html_())


def test_names_in_a_table_are_escaped(fitted: OpenSetClassifier) -> None:
    pictures, _ = arrays(1)
    table = fitted.predict_table(pictures)
    odd = replace(
        table,
        label=np.asarray([EVIL] * 3),
        nearest=np.asarray([EVIL] * 3),
        images=replace(table.images, sources=(EVIL,) * 3),
    )
    html = Tags(odd._repr_html_())
    assert "script" not in {tag for tag, _ in html.tags}
    assert html.text.count(EVIL) == 9


def test_long_tables_are_cut(fitted: OpenSetClassifier) -> None:
    pictures, _ = arrays(20)
    table = fitted.predict_table(pictures)
    assert repr(table).splitlines()[-1] == "… and 10 more"
    assert table._repr_html_().count("<img") == 50
    assert "… and 10 more" in table._repr_html_()
    with pytest.warns(UserWarning, match="nothing is rejected"):
        lenient = quick(false_reject=0.01).fit(*arrays())
    assert repr(lenient.predict_table(pictures[:1])).splitlines()[1].split()[4] == "none"


def test_explanations_show_themselves(fitted: OpenSetClassifier, folders: Path) -> None:
    found = fitted.explain(folders / "others")
    picture = Image.open(io.BytesIO(found[0]._repr_png_()))
    assert min(picture.size) > 200
    assert repr(found[0]).startswith(f"<Explanation {folders / 'others' / '0.png'}: unknown: most like")
    assert len(repr(found[0])) < 300 + len(str(folders))
    html = Tags(found._repr_html_())
    assert len([1 for tag, _ in html.tags if tag == "img"]) == 10
    assert "… and 2 more" in html.text
    assert found[:1][0].to_dict()["label"] == "unknown"
    odd = type(found)([replace(found[0], classes=(replace(found[0].classes[0], name=EVIL),))])
    (picture_tag,) = [attributes for tag, attributes in Tags(odd._repr_html_()).tags if tag == "img"]
    assert EVIL in str(picture_tag["alt"])
    explained = fitted.recognizer_.explain(as_images(folders / "others", fitted.recognizer_.image_format))
    assert torch.equal(found[3].heat, explained[3].heat)
