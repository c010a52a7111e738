"""A method from the user's own Python file: ``mine.py``, or ``mine.py:MyMethod`` if it has several.

The file is the user's own code, named by the user, and is run like any script. A model file never names one.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, choose
from ..models.user_code import read_code, run_code, split_word
from . import METHODS
from .interface import Method


@dataclass(frozen=True)
class MethodSource:
    """Where a registered method's code came from."""

    path: str
    class_name: str
    code: bytes

    @property
    def sha256(self) -> str:
        """The hash of the code."""
        return hashlib.sha256(self.code).hexdigest()


def is_method_file(word: object) -> bool:
    """Return whether ``word`` means a Python file rather than the name of a method.

    >>> is_method_file("./mine.py:Mine"), is_method_file("gradmix")
    (True, False)
    """
    return isinstance(word, str) and split_word(word)[0].endswith(".py")


def load_method(word: str) -> str:
    """Run the file that ``word`` names, register its method, and return the method's name."""
    path, wanted = split_word(word)
    return register_code(read_code(path, "a method"), path, wanted)


def look_beside(word: str, folder: Path) -> str:
    """Return ``word`` with the path of the file in ``folder``, if it is there."""
    path, wanted = split_word(word)
    near = folder / path
    if not near.is_file():
        return word
    return f"{near}:{wanted}" if wanted else str(near)


def register_code(code: bytes, path: str, wanted: str = "") -> str:
    """Run ``code``, put its Method (the one called ``wanted``) into METHODS, and return its name there.

    ``path`` is where the code came from, for errors and records.
    """
    there = source_of(wanted.lower())
    if there is not None and (there.code, there.class_name) == (code, wanted):
        return wanted.lower()  # the same class again: recipes made from it stay equal
    module = run_code(code, path, "gradmix_method")
    kinds = _methods_in(vars(module), module.__name__)
    if not kinds:
        raise UserError(f"{path} has no class derived from gradmix.methods.Method with losses or step")
    if not wanted and len(kinds) > 1:
        raise UserError(f"{path} has several methods; say which: {path}:{next(iter(kinds))}")
    kind = kinds[choose(f"method in {path}", wanted, kinds)] if wanted else next(iter(kinds.values()))
    if not inspect.isclass(getattr(kind, "Settings", None)):
        raise UserError(f"{kind.__name__} in {path} needs a class attribute Settings, a frozen dataclass")
    name = kind.__name__.lower()
    if name in METHODS and source_of(name) is None:
        raise UserError(f"{kind.__name__} in {path}: there is a method '{name}' already; call it otherwise")
    kind.source = MethodSource(path, kind.__name__, code)  # type: ignore[attr-defined]
    kind.code_hash = kind.source.sha256[:16]  # type: ignore[attr-defined]  # with it, changed code is another training
    METHODS[name] = kind
    return name


def source_of(name: str) -> MethodSource | None:
    """Return where the method of this name was loaded from, or None for one of the package."""
    source = vars(METHODS[name]).get("source") if name in METHODS else None
    return source if isinstance(source, MethodSource) else None


def _methods_in(names: dict[str, Any], module: str) -> dict[str, type[Method]]:
    return {
        name: value
        for name, value in names.items()
        if inspect.isclass(value)
        and issubclass(value, Method)
        and value.__module__ == module
        and (value.losses is not Method.losses or value.step is not Method.step)
    }
