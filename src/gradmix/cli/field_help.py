"""The recipe's fields with their defaults and meanings, from the lines that declare them: they cannot drift.

Read from the source text, so that ``gradmix train --help`` does not wait for torch.
"""

from __future__ import annotations

import ast
from importlib import resources
from typing import NamedTuple

# Heading, and the classes whose fields are listed under it, in the order of Recipe.flat().
SECTIONS = {
    "the objective (of the method gradmix; other methods: gradmix recipe show NAME)": (
        ("methods/mixed_views.py", "MixingSettings"),
        ("methods/gradmix.py", "GradMixSettings"),
    ),
    "what is fitted to a frozen network (of the method frozen; recipe photos sets all to true)": (
        ("methods/frozen.py", "FrozenSettings"),
    ),
    "views: what the network sees in training": (("views/augment.py", "ViewSettings"),),
    "the network": (("models/encoders.py", "ModelSettings"),),
    "the loop": (("recipe/training_settings.py", "TrainingSettings"),),
    "deciding: score and threshold": (("detection/settings.py", "DetectionSettings"),),
}
_WIDTH = 36


class FieldHelp(NamedTuple):
    """A field, its default as written on the command line, and what its comment says ("" for none)."""

    name: str
    default: str
    meaning: str


def read_fields(source: str, class_name: str) -> list[FieldHelp]:
    """Return the fields that a class declares in the text of a module, with the comments behind them.

    >>> read_fields("class A:\\n    b: int = 3  # so many\\n    c: tuple[int, ...] = (1, 2)\\n", "A")
    [FieldHelp(name='b', default='3', meaning='so many'), FieldHelp(name='c', default='1,2', meaning='')]
    """
    lines = source.splitlines()
    found = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    fields = []
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            behind = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :].decode()
            meaning = behind.strip().removeprefix("#").strip()
            fields.append(FieldHelp(node.target.id, _write_default(node.value), meaning))
    return fields


def list_fields() -> dict[str, list[FieldHelp]]:
    """Return the fields of a recipe of the default method, and of a frozen network, by section."""
    package = resources.files("gradmix")
    return {
        heading: [
            field
            for file, name in classes
            for field in read_fields((package / file).read_text(encoding="utf-8"), name)
        ]
        for heading, classes in SECTIONS.items()
    }


def describe_fields() -> str:
    """Return the text of all sections: one line per field, as an option, with default and meaning."""
    lines = ["recipe fields, each an option (defaults where the recipe says nothing):"]
    for heading, fields in list_fields().items():
        lines += ["", f"{heading}:"]
        for field in fields:
            option = f"  --{field.name.replace('_', '-')} {field.default}"
            lines.append(f"{option:{_WIDTH}s} {field.meaning}".rstrip())
    return "\n".join(lines)


def write_value(value: object) -> str:
    """Return a value as the command line takes it.

    >>> [write_value(value) for value in (0.5, True, None, "", (1, 2))]
    ['0.5', 'true', 'none', '""', '1,2']
    """
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value) or '""'


def _write_default(value: ast.expr) -> str:
    if isinstance(value, ast.Name):  # the constant AUTO is "auto"
        return value.id.lower()
    try:
        return write_value(ast.literal_eval(value))
    except ValueError:  # a sum, a call
        return ast.unparse(value)
