"""A recipe: every setting of a run, flat in its file and on the command line, typed in the code.

Each room declares its own settings as a frozen dataclass; no two share a field name, so that one name
means one thing everywhere: ``epochs: 5`` in a file is ``--epochs 5`` on the command line.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from ..detection.settings import DetectionSettings
from ..errors import UserError, choose
from ..methods import METHODS
from ..models import ModelSettings
from ..views import ViewSettings
from .settings import TrainingSettings


@dataclass(frozen=True)
class Recipe:
    """``method`` names an entry of METHODS; ``objective`` holds that method's own settings."""

    method: str
    objective: Any
    views: ViewSettings
    model: ModelSettings
    training: TrainingSettings
    detection: DetectionSettings

    def flat(self) -> dict[str, Any]:
        """Every field by its one name, in the order data flows; lists for tuples, ready for YAML and JSON."""
        values: dict[str, Any] = {"method": self.method}
        for part in (self.objective, self.views, self.model, self.training, self.detection):
            values |= dataclasses.asdict(part)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def to_yaml(self) -> str:
        """The text of a recipe file with every field."""
        return yaml.safe_dump(self.flat(), sort_keys=False, allow_unicode=True)


def recipe_names() -> list[str]:
    """The recipes that come with the package, such as ``small`` and ``paper/cifar10``."""
    root = resources.files("gradmix") / "recipes"
    return sorted(_names_below(root, ""))


def load_recipe(name: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A shipped recipe by name, or a YAML file by path, with some fields replaced.

    >>> load_recipe("small", {"epochs": "5"}).training.epochs
    5
    """
    return make_recipe(replaced(_read(name, ()), overrides or {}))


def replaced(values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Flat ``values`` with ``fields`` over them; another method takes over those that it has too.

    >>> replaced({"method": "gradmix", "lam": 0.2, "epochs": 9}, {"method": "ce"})
    {'method': 'ce', 'epochs': 9}
    """
    before, after = (str(v.get("method", "gradmix")) for v in (values, {**values, **fields}))
    foreign: set[str] = set()
    if before != after and before in METHODS and after in METHODS:  # others are refused by make_recipe
        foreign = set(field_names(before)) - set(field_names(after))
    return {name: value for name, value in values.items() if name not in foreign} | dict(fields)


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """From flat values; text is converted to the field's type, a misspelt field names the nearest."""
    rest = dict(values)
    method = choose("method", str(rest.pop("method", "gradmix")), METHODS)
    parts: dict[str, Any] = {}
    for part, kind in _sections(method).items():
        types_of = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        parts[part] = kind(**{n: _convert(n, rest.pop(n), types_of[n]) for n in names if n in rest})
    for name in rest:
        choose(f"recipe field (method {method})", str(name), field_names(method))
    return Recipe(method, **parts)


def field_names(method: str) -> list[str]:
    """All that a recipe of this method may set."""
    found = [f.name for kind in _sections(method).values() for f in dataclasses.fields(kind)]
    return ["method", *found]


def _sections(method: str) -> dict[str, type[Any]]:
    return {
        "objective": METHODS[method].Settings,
        "views": ViewSettings,
        "model": ModelSettings,
        "training": TrainingSettings,
        "detection": DetectionSettings,
    }


def _convert(name: str, value: Any, kind: Any) -> Any:
    """``value`` (from YAML or the command line) as ``kind``."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or value in ("none", "null", ""):
            return None
        return _convert(name, value, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        items = value.replace("+", ",").split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        if arguments[-1] is not Ellipsis and len(items) != len(arguments):
            raise UserError(f"{name} takes {len(arguments)} values, not {value!r}; for example 0.2,1.0")
        return tuple(_convert(name, i.strip() if isinstance(i, str) else i, arguments[0]) for i in items)
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false", "yes", "no", "1", "0"):
            return str(value).lower() in ("true", "yes", "1")
        raise UserError(f"{name} must be true or false, not {value!r}")
    if value is None:
        raise UserError(f"{name} must be {_noun(kind)}, not empty")
    try:
        converted = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} must be {_noun(kind)}, not {value!r}") from None
    if kind is int and isinstance(value, float) and value != converted:
        raise UserError(f"{name} must be a whole number, not {value!r}")
    return converted


def _noun(kind: Any) -> str:
    return {int: "a whole number", float: "a number", str: "text"}.get(kind, str(kind))


def _read(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """The file's values over those of its ``base``, if it names one."""
    if name in seen:
        raise UserError(f"recipe {name} is its own base, by way of {' -> '.join(seen)}")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UserError(f"no recipe file {name}")
        content = path.read_bytes()
    else:
        choose("recipe", name, recipe_names())
        content = (resources.files("gradmix") / "recipes" / f"{name}.yaml").read_bytes()
    values = parse_values(content, f"recipe {name}")
    base = values.pop("base", None)
    return values if base is None else replaced(_read(str(base), (*seen, name)), values)


def parse_values(content: bytes, where: str) -> dict[str, Any]:
    """The 'field: value' lines of a YAML file; ``where`` names it in errors."""
    try:
        values = yaml.safe_load(content.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a list of 'field: value' lines")
    return values


def _names_below(folder: Traversable, prefix: str) -> list[str]:
    names: list[str] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += _names_below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".yaml"):
            names.append(prefix + entry.name.removesuffix(".yaml"))
    return names
