"""Install lines work: from a clone, or for an extra of the package that is installed; extras exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FILES = [
    *(ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))),
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "examples").iterdir()),
]
LINE = re.compile(r"pip install ([^\n`#;]+)")
CLONE = re.compile(r"-c constraints\.txt ('?)\.(\[([\w,]+)\])?\1")
EXTRA = re.compile(r"['\"\\]*gradmix\[([\w,]+)\]['\"\\]*")


def test_every_install_line_is_one_of_few() -> None:
    found = [
        (file, words.strip()) for file in FILES for words in LINE.findall(file.read_text(encoding="utf-8"))
    ]
    assert len(found) > 10
    for file, words in found:
        clone, extra = CLONE.match(words), EXTRA.match(words)
        named = (clone[3] or "") if clone else extra[1] if extra else ""
        assert set(filter(None, named.split(","))) <= set(EXTRAS), (file, words)
        others = ("gradmix", "--upgrade gradmix", "pillow-heif", "onnxruntime", "{name}", "wandb", "mlflow")
        others += ('"gradmix[{extras}]"',)  # of a model card: hub, or hub and transformers
        assert clone or extra or words.startswith(others), (file, words)


def test_pages_that_install_it_say_both_lines() -> None:
    """The one that works today, and the one for when it is published."""
    for name in ("README.md", "docs/index.md", "docs/tour.md", "docs/guide.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "pip install -c constraints.txt '.[pretrained]'" in text, name
        assert "pip install 'gradmix[pretrained]'" in text, name


def test_extras_are_in_the_guide_and_in_dev() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", re.search(r"^Extras: (.*)$", guide, re.MULTILINE)[1]))  # type: ignore[index]
    assert listed == set(EXTRAS) - {"docs", "dev"}
