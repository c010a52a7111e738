"""Recipe files: those that come with the package, by name, and the user's own, by path."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError, choose
from ..methods.from_file import is_method_file, load_method, look_beside
from .recipe import Recipe, make_recipe, replace_fields

_LARGEST_FILE = 2**20  # bytes
_MOST_VALUES = 10_000


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package, such as ``small`` and ``paper/cifar10``."""
    return list(_read_shipped())


def recipe_description(name: str) -> str:
    """Return the first sentence of the comment at the top of a shipped recipe.

    >>> recipe_description("small")
    'For a folder of images on a CPU: colour, 64 pixels, a small network.'
    """
    lines = _read_shipped()[choose("recipe", name, recipe_names())].decode("utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    return re.split(r"(?<=\.) (?=[A-Z-])", text)[0]


def load_recipe(name: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Return a shipped recipe by name, or a YAML file by path, with some fields replaced.

    >>> load_recipe("small", {"epochs": "5"}).training.epochs
    5
    """
    return make_recipe(replace_fields(read_recipe_values(name), load_own_method(overrides or {})))


def read_recipe_values(name: str) -> dict[str, Any]:
    """Return only what a recipe file and its bases say, without the defaults of the fields they leave out."""
    return _read(name, ())


def load_own_method(values: Mapping[str, Any]) -> dict[str, Any]:
    """Run the user's own Python file, if the values name one; return the values with the method's name."""
    word = values.get("method")
    return {**values, "method": load_method(str(word))} if is_method_file(word) else dict(values)


def parse_values(content: bytes, where: str) -> dict[str, Any]:
    """Return the 'field: value' lines of a YAML file; ``where`` names it in errors."""
    if len(content) > _LARGEST_FILE:
        raise UserError(f"{where} has {len(content):,} bytes; no recipe is larger than {_LARGEST_FILE:,}")
    try:
        values = yaml.safe_load(content.decode("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a list of 'field: value' lines")
    _refuse_bomb(values, where)
    return values


def _refuse_bomb(values: dict[str, Any], where: str) -> None:
    """Raise for values that grow when they are looked at (aliases of aliases), and for absurd numbers."""
    left, count = list[Any]([values]), 0
    while left:
        value = left.pop()
        count += 1
        if count > _MOST_VALUES:
            raise UserError(
                f"{where} has more than {_MOST_VALUES:,} values, counted as often as they are used"
            )
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple | set):
            left += value
        elif isinstance(value, int) and abs(value) >= 2**63:
            raise UserError(f"{where} has a number of {len(hex(value)) - 2} hexadecimal digits")


def _read(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """Return the file's values over those of its ``base``, if it names one."""
    if name in seen:
        raise UserError(f"recipe {name} is its own base, by way of {' -> '.join(seen)}")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UserError(f"no recipe file {name}")
        content = path.read_bytes()
    else:
        content = _read_shipped()[choose("recipe", name, recipe_names())]
    values = dict(_parse(content, f"recipe {name}"))
    word = values.get("method")
    if is_method_file(word):
        values = load_own_method({**values, "method": look_beside(str(word), path.parent)})
    base = values.pop("base", None)
    return values if base is None else replace_fields(_read(str(base), (*seen, name)), values)


@functools.cache
def _read_shipped() -> dict[str, bytes]:
    """Return the shipped files by name. Kept: the plan of an experiment asks for them hundreds of times."""
    found = _read_below(resources.files("gradmix") / "recipes", "")
    return dict(sorted(found.items()))


def _read_below(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _read_below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".yaml"):
            found[prefix + entry.name.removesuffix(".yaml")] = entry.read_bytes()
    return found


_parse = functools.lru_cache(maxsize=256)(parse_values)  # whoever changes what it gives must copy it
