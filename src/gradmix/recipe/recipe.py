"""A recipe: every setting of a run, flat in its file and on the command line, typed in the code.

Each package declares its own settings as a frozen dataclass; no two share a field name, so that one name
means one thing everywhere: ``epochs: 5`` in a file is ``--epochs 5`` on the command line.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ..detection.settings import DetectionSettings
from ..errors import choose
from ..methods import METHODS
from ..models import ModelSettings
from ..views import ViewSettings
from .convert import convert
from .training_settings import TrainingSettings


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
        """Return every field by name, in the order data flows; lists for tuples, ready for YAML and JSON."""
        values: dict[str, Any] = {"method": self.method}
        for part in (self.objective, self.views, self.model, self.training, self.detection):
            values |= dataclasses.asdict(part)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def to_yaml(self, method: str | None = None) -> str:
        """Return the text of a recipe file with every field; ``method`` is what it says of the method."""
        values = self.flat() | ({} if method is None else {"method": method})
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def replace_fields(values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat ``values`` with ``fields`` over them; fields that another method does not have are dropped.

    >>> replace_fields({"method": "gradmix", "lam": 0.2, "epochs": 9}, {"method": "ce"})
    {'method': 'ce', 'epochs': 9}
    """
    before, after = (str(v.get("method", "gradmix")) for v in (values, {**values, **fields}))
    foreign: set[str] = set()
    if before != after and before in METHODS and after in METHODS:  # others are refused by make_recipe
        foreign = set(field_names(before)) - set(field_names(after))
    return {name: value for name, value in values.items() if name not in foreign} | dict(fields)


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from flat values: text is converted, an unknown field names the nearest known one."""
    rest = dict(values)
    method = choose("method", str(rest.pop("method", "gradmix")), METHODS)
    parts: dict[str, Any] = {}
    for part, kind in _sections(method).items():
        types_of = _types_of(kind)  # type: ignore[arg-type]
        names = [f.name for f in dataclasses.fields(kind)]
        parts[part] = kind(**{n: convert(n, rest.pop(n), types_of[n]) for n in names if n in rest})
    for name in rest:
        choose(f"recipe field (method {method})", str(name), field_names(method))
    return Recipe(method, **parts)


def field_names(method: str) -> list[str]:
    """Return the names of all fields that a recipe of this method may set."""
    found = [f.name for kind in _sections(method).values() for f in dataclasses.fields(kind)]
    return ["method", *found]


_types_of = functools.cache(typing.get_type_hints)


def _sections(method: str) -> dict[str, type[Any]]:
    """Return the settings class of each part of a recipe."""
    return {
        "objective": METHODS[method].Settings,
        "views": ViewSettings,
        "model": ModelSettings,
        "training": TrainingSettings,
        "detection": DetectionSettings,
    }
