"""The user's own Python file, run because the user named it: ``mine.py:build``."""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError, first_line


def split_word(word: str) -> tuple[str, str]:
    """Split what names something in a file: the path, and what comes after the last colon.

    >>> split_word("mine.py:build"), split_word("mine.py")
    (('mine.py', 'build'), ('mine.py', ''))
    """
    if word.endswith(".py"):
        return word, ""
    path, _, wanted = word.rpartition(":")
    return (path, wanted) if path else (word, "")


def read_code(path: str, what: str) -> bytes:
    """Return the content of a file; ``what`` is to be taken from it, for errors."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no file {path} to take {what} from")
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def run_code(code: bytes, path: str, prefix: str) -> types.ModuleType:
    """Run ``code`` as a module of its own, called by ``prefix`` and its hash; ``path`` is for errors."""
    digest = hashlib.sha256(code).hexdigest()
    module = types.ModuleType(f"{prefix}_{digest[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses and type hints look their module up
    try:
        with _folder_on_path(path):
            exec(compile(code, path, "exec"), vars(module))
    except SyntaxError as error:
        where = "" if error.lineno is None else f", line {error.lineno}"  # none for bytes that are no text
        raise UserError(f"{path}{where}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {first_line(error)}") from error
    return module


def call_user(function: Any, path: str, name: str) -> Any:
    """Call a function of the user's file; what it raises becomes one line."""
    try:
        with _folder_on_path(path):
            return function()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{name}() in {path} failed: {type(error).__name__}: {first_line(error)}") from error


@contextmanager
def _folder_on_path(path: str) -> Iterator[None]:
    """Let the file import those beside it, as a script can."""
    folder = str(Path(path).absolute().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the user's code may have changed it
            sys.path.remove(folder)
