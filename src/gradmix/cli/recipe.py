"""``gradmix recipe``: list the recipes, show one with what its fields mean, compare two."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from .field_help import read_fields, write_value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the three subcommands to ``parser``."""
    parser.description = (
        "A recipe is every setting of a training. NAME is one that comes with the package, or a YAML file: "
        "your own, or the recipe.yaml of a run."
    )
    ways = parser.add_subparsers(dest="way", required=True, metavar="list|show|diff")
    ways.add_parser("list", help="the recipes that come with the package, and what each is for")
    show = ways.add_parser("show", help="every field of a recipe, and what it means")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--set", action="store_true", help="only what the file and its bases set")
    diff = ways.add_parser("diff", help="the fields in which two recipes differ")
    diff.add_argument("first", metavar="A")
    diff.add_argument("second", metavar="B")


def run(args: argparse.Namespace) -> int:
    """Print what was asked for."""
    if args.way == "list":
        _print_list()
    elif args.way == "show":
        print(show_recipe(args.name, only_set=args.set))
    else:
        _print_difference(args.first, args.second)
    return 0


def show_recipe(name: str, only_set: bool = False) -> str:
    """Return a recipe as YAML, with the meaning of each field behind it; ``only_set``: what it sets."""
    import yaml

    from ..recipe import load_recipe, read_recipe_values

    recipe = load_recipe(name)
    values = recipe.flat()
    if only_set:
        said = read_recipe_values(name)
        values = {field: value for field, value in values.items() if field in said}
    meanings = _read_meanings(recipe)
    lines = []
    for field, value in values.items():
        text = f"{field}: {yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1000)}"
        text, meaning = text.removesuffix("...\n").strip(), meanings.get(field, "")
        lines.append(f"{text:40s} # {meaning}" if meaning else text)
    return "\n".join(lines)


def _read_meanings(recipe: Any) -> dict[str, str]:
    """Return the comment of each field, also of those that a settings class inherits."""
    from pathlib import Path

    found: dict[str, str] = {}
    for part in (recipe.objective, recipe.views, recipe.model, recipe.training, recipe.detection):
        for kind in reversed(type(part).__mro__[:-1]):
            file = inspect.getsourcefile(kind)
            if file and Path(file).is_file():  # a method of one's own may have no file any more
                fields = read_fields(Path(file).read_text(encoding="utf-8"), kind.__name__)
                found |= {field.name: field.meaning for field in fields}
    return found


def _print_list() -> None:
    from rich.table import Table
    from rich.text import Text

    from ..progress import print_table
    from ..recipe import recipe_description, recipe_names

    table = Table("recipe", "what it is", box=None)
    for name in recipe_names():
        table.add_row(Text(name), Text(recipe_description(name)))
    print_table(table)


def _print_difference(first: str, second: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..progress import print_table
    from ..recipe import load_recipe

    one, other = (load_recipe(name).flat() for name in (first, second))
    table = Table("field", box=None)
    for name in (first, second):
        table.add_column(Text(name))
    for field in [*one, *(name for name in other if name not in one)]:
        left, right = (_write_value(values, field) for values in (one, other))
        if left != right:
            table.add_row(field, Text(left), Text(right))
    if table.row_count:
        print_table(table)
    else:
        print(f"{first} and {second} are the same")


def _write_value(values: dict[str, Any], field: str) -> str:
    """Return a field as the command line takes it; a dash where the method has no such field."""
    if field not in values:
        return "–"
    return write_value(values[field])
