"""A row of one's own: a YAML file of recipe fields, or a Python file with a Method in it.

The Python file is the user's own code, named by the user on the command line, and is run like any script.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from ..errors import UserError, choose
from ..methods import METHODS, Method
from ..training import field_names
from ..training.recipe import parse_values
from .declaration import Arm


def own_arm(word: str) -> Arm:
    """``my.yaml``, ``my.py`` or ``my.py:MyMethod`` as a row; a method in it is registered under its name."""
    path, _, wanted = word.partition(":")
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no file {path} to take a method from")
    if file.suffix == ".py":
        name = register(file, wanted)
        return Arm(name, name, {"method": name}, code=_hash(file))
    fields = parse_values(file.read_bytes(), f"method file {path}")
    label = str(fields.pop("label", file.stem))
    method = choose("method", str(fields.get("method", "gradmix")), METHODS)
    for field in fields:
        choose(f"recipe field (method {method})", str(field), field_names(method))
    if "seed" in fields:
        raise UserError(f"{path}: seed: every trial has its own, its number; choose trials with --trials")
    return Arm(file.stem, label, fields, code=_hash(file))


def register(file: Path, wanted: str = "") -> str:
    """Run ``file``, put its Method (the one called ``wanted``) into METHODS, and return its name there."""
    spec = importlib.util.spec_from_file_location(f"own_method_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's own code raises
        raise UserError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    kinds = _methods_in(vars(module), module.__name__)
    if not kinds:
        raise UserError(f"{file} has no class derived from gradmix.methods.Method")
    if not wanted and len(kinds) > 1:
        raise UserError(f"{file} has several methods; say which: {file}:{next(iter(kinds))}")
    kind = kinds[choose(f"method in {file}", wanted, kinds)] if wanted else next(iter(kinds.values()))
    if not inspect.isclass(getattr(kind, "Settings", None)):
        raise UserError(f"{kind.__name__} in {file} needs a class attribute Settings, a frozen dataclass")
    name = kind.__name__.lower()
    if name in METHODS and not hasattr(METHODS[name], "code_hash"):
        raise UserError(f"{kind.__name__} in {file}: there is a method '{name}' already; call it otherwise")
    # With it, changed code is another training.
    kind.code_hash = _hash(file)  # type: ignore[attr-defined]
    METHODS[name] = kind
    return name


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _methods_in(names: dict[str, Any], module: str) -> dict[str, type[Method]]:
    return {
        name: value
        for name, value in names.items()
        if inspect.isclass(value)
        and issubclass(value, Method)
        and value.__module__ == module
        and not inspect.isabstract(value)
    }
