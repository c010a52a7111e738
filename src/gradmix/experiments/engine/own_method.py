"""A row of one's own: a YAML file of recipe fields, or a Python file with a Method in it.

The Python file is the user's own code, named by the user on the command line, and is run like any script.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...errors import UserError, choose
from ...methods import METHODS
from ...methods.from_file import is_method_file, load_method
from ...recipe import field_names, parse_values
from ..declaration import Arm


def load_own_arm(word: str) -> Arm:
    """Make a row of ``my.yaml``, ``my.py`` or ``my.py:MyMethod``, and register a method by its name."""
    if is_method_file(word):
        name = load_method(word)
        return Arm(name, name, {"method": name}, code=METHODS[name].code_hash)  # type: ignore[attr-defined]
    path, file = word, Path(word)
    if not file.is_file():
        raise UserError(f"no file {path} to take a method from")
    fields = parse_values(file.read_bytes(), f"method file {path}")
    label = str(fields.pop("label", file.stem))
    method = choose("method", str(fields.get("method", "gradmix")), METHODS)
    for field in fields:
        choose(f"recipe field (method {method})", str(field), field_names(method))
    if "seed" in fields:
        raise UserError(f"{path}: seed: every trial has its own, its number; choose trials with --trials")
    return Arm(file.stem, label, fields, code=_hash(file))


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
