"""The pages are true as far as a machine can tell: examples run, commands parse, tables are the package's."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from gradmix.cli import COMMANDS, Parser
from gradmix.cli.recipe_fields import separate_recipe_fields
from gradmix.cli.sources import get_chosen_split
from gradmix.detection import DETECTORS
from gradmix.errors import UserError, choose
from gradmix.experiments import EXPERIMENTS, PRESETS
from gradmix.methods import METHODS
from gradmix.training import field_names, load_recipe, make_recipe, recipe_names
from gradmix.training.session import describe_network
from tests.training.tiny import CLASSES, FIELDS, shape_image

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(gradmix [^`]+)`")
STANDS_FOR = {"P": "mnist", "cpu/P": "cpu/mnist", "runs/P": "runs/mnist"}  # in the tables of results.md


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


# Python


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folders that the pages speak of, full of coloured shapes, and trainings of a second."""
    rng = np.random.default_rng(0)
    folders = [(f"photos/{kind}", 12) for kind in CLASSES] + [("new", 4), ("otters", 3)]
    folders += [("test/unknown", 4), ("test/strangers", 4), *((f"test/known/{kind}", 4) for kind in CLASSES)]
    for folder, each in folders:
        kind = Path(folder).name if Path(folder).name in CLASSES else "cross"
        (tmp_path / folder).mkdir(parents=True)
        for i in range(each):
            Image.fromarray(shape_image(kind, rng)).save(tmp_path / folder / f"{i}.png")

    def tiny(values: Any) -> Any:
        method = str(values.get("method", "gradmix"))
        small = {name: value for name, value in FIELDS.items() if name in field_names(method)}
        return make_recipe(
            {**values, **small, "holdout": values.get("holdout", 0.0), "false_reject": 0.4, "init": ""}
            | ({"evidence": False} if "evidence" in values else {})  # which needs the weights of init
        )

    monkeypatch.setattr("gradmix.estimator.parameters.make_recipe", tiny)
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    registered = dict(DETECTORS)  # a page may add its own
    yield
    DETECTORS.clear()
    DETECTORS.update(registered)


def python_pages() -> list[Path]:
    return list(dict.fromkeys(block.page for block in BLOCKS if block.language == "python"))


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", python_pages(), ids=lambda page: page.stem)
def test_python_examples_run(page: Path) -> None:
    """In order, in one namespace a page, as a reader would."""
    names: dict[str, Any] = {"__name__": "example"}
    for block in (b for b in BLOCKS if b.page == page and b.language == "python"):
        if ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, names, str(block), str(block), block.line)
            failed, tried = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
            assert tried
            assert not failed, block
            names |= test.globs
        else:
            exec(compile(block.text, str(block), "exec", dont_inherit=True), names)


# Commands


def command_lines() -> Iterator[tuple[str, str]]:
    """(where, words after ``gradmix``) of every command in a block, also those behind torchrun."""
    for block in BLOCKS:
        if block.language not in ("", "sh", "console"):
            continue
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            bare = line.removeprefix("$ ")
            if bare.startswith("gradmix "):
                yield str(block), bare.removeprefix("gradmix ")
            elif " | gradmix " in bare:
                yield str(block), bare.partition(" | gradmix ")[2]
            elif "torchrun" in bare and "-m gradmix " in bare:
                yield str(block), bare.partition("-m gradmix ")[2]


def words_of(line: str) -> list[str]:
    """As a shell splits it, up to a redirection or a pipe; placeholders filled in."""
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if word in (">", "|", "2>")), len(words))
    return [STANDS_FOR.get(word, word) for word in words[:end]]


def parse(words: list[str]) -> None:
    """Raise UserError where ``gradmix words`` would be refused before it looks at any file."""
    command = importlib.import_module(f"gradmix.cli.{choose('command', words[0], COMMANDS)}")
    parser = Parser(prog=f"gradmix {words[0]}", allow_abbrev=False)
    command.add_arguments(parser)
    rest, fields = words[1:], dict[str, str]()
    if getattr(command, "TAKES_RECIPE_FIELDS", False):
        rest, fields = separate_recipe_fields(rest, parser.option_names())
    args = parser.parse_args(rest)
    if fields.get("method", "").endswith(".py"):
        fields = {}  # those of the reader's own file
    if words[0] in ("train", "demo"):
        recipe = getattr(args, "recipe", None) or {"train": "small", "demo": "demo"}[words[0]]
        model = load_recipe("small" if recipe.endswith(".yaml") else recipe, fields).model
        if model.init and model.stem not in ("auto", "imagenet"):
            raise UserError(f"published weights have no stem '{model.stem}'")
    elif words[0] == "reproduce":
        if args.experiment:
            choose("experiment", args.experiment, EXPERIMENTS)
        choose("preset", args.preset, PRESETS)
        for field in fields:
            choose("recipe field", field, {name for method in METHODS for name in field_names(method)})
    if words[0] in ("train", "evaluate") and args.protocol:
        get_chosen_split(args)


@pytest.mark.parametrize(("where", "line"), sorted(set(command_lines())))
def test_commands_parse(where: str, line: str) -> None:
    parse(words_of(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_text_exist(page: Path) -> None:
    """`gradmix bench step --rounds 25`: the command, and every option or recipe field."""
    fields = {name for method in METHODS for name in field_names(method)}
    for span in INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name, *words = words_of(span.removeprefix("gradmix "))
        if name in ("COMMAND", "--help", "--version"):
            continue
        command = importlib.import_module(f"gradmix.cli.{choose('command', name, COMMANDS)}")
        parser = Parser(prog=name)
        command.add_arguments(parser)
        options = {"--" + field.replace("_", "-") for field in fields}
        for kind in (parser, *_subparsers(parser)):
            options |= kind.option_names()
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{page.name}: {span}"


def _subparsers(parser: Parser) -> list[Parser]:
    return [
        p for action in parser._actions if isinstance(action.choices, dict) for p in action.choices.values()
    ]


@pytest.mark.parametrize(
    "line",
    [
        "trian photos/",
        "train photos/ --out x --epoch 5",
        "train --protocol mnst --out x",
        "train photos/ --encoder resnet18 --init resnet18.pth --out x",  # small's own stem is another
        "predict run",
    ],
)
def test_the_check_refuses(line: str) -> None:
    with pytest.raises(UserError):
        parse(words_of(line))


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=str)
def test_recipes_in_the_pages_are_recipes(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    values = yaml.safe_load(block.text)
    values.pop("label", None)  # of a row of one's own
    file.write_text(yaml.safe_dump(values))
    load_recipe(str(file))


# Pages


def test_the_table_of_recipes_is_that_of_the_package() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (\S+) \| (\w+) \| (\d+) \| ([^|]+) \|", _page("choosing"), re.MULTILINE
    )
    assert sorted(name for name, *_ in rows) == recipe_names()
    for name, method, encoder, pixels, length in rows:
        recipe = load_recipe(name)
        network = describe_network(recipe, 10)
        assert (method, encoder, int(pixels)) == (recipe.method, network.encoder, network.image_size)
        t = recipe.training
        expected = f"{t.max_steps} steps" if t.max_steps else f"{t.epochs} epochs"
        assert length == (expected if METHODS[method].needs_training else "nothing"), name


def test_every_method_has_a_page_and_a_row() -> None:
    rows = re.findall(
        r"`([a-z0-9+-]+)`", "".join(re.findall(r"^\|[^|]+\|", _page("methods/index"), re.MULTILINE))
    )
    assert sorted(rows) == sorted(METHODS)
    pages = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert pages == {"index", *METHODS} - {"ce+ssl"}


# "Paper and release" has other names where no release could be read, or there is nothing but the paper.
SECTIONS = ("Idea", "Formula", "Cost", "When to use it", "Published")
DIFFERENCES = (
    "Paper and release",
    "What is certain",
    "The paper's own version",
    "What the paper leaves",
    "Choices",
)


@pytest.mark.parametrize("name", sorted({*METHODS} - {"ce+ssl", "frozen"}))  # frozen is of no paper
def test_the_page_of_a_method_has_every_section(name: str) -> None:
    heads = re.findall(r"^(?:## |\*\*)([^*\n]+)", _page(f"methods/{name}"), re.MULTILINE)
    missing = [section for section in SECTIONS if not any(head.startswith(section) for head in heads)]
    assert not missing
    assert any(head.startswith(DIFFERENCES) for head in heads)


def test_the_table_of_commands_is_that_of_the_package() -> None:
    rows = re.findall(r"^\| `gradmix (\w+)` \|", _page("commands"), re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert "://" in target or (ROOT / target).exists(), target


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
