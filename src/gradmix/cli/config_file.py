"""``--config FILE.yaml``: the options of a command, and recipe fields, from a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import UserError, choose

_NOT_IN_A_FILE = ("config", "help")


def apply_config(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Put into ``args`` what ``args.config`` says and the command line does not; both know the same names.

    A key is an option of the command without its dashes (``source`` for what stands alone), or a recipe
    field. Paths are taken as on the command line: relative to the working directory.
    """
    from ..recipe import parse_values

    file: Path = args.config
    if not file.is_file():
        raise UserError(f"no file {file} (--config)")
    options = {action.dest: action for action in parser._actions if action.dest not in _NOT_IN_A_FILE}
    fields: dict[str, Any] = {}
    for key, value in parse_values(file.read_bytes(), str(file)).items():
        name = str(key).replace("-", "_")
        if name not in options:
            fields[name] = value
        elif getattr(args, name) is None or getattr(args, name) is False:  # not on the command line
            setattr(args, name, _read_option(options[name], value, file))
    args.recipe_fields = fields | args.recipe_fields
    _refuse_misspelt(args, set(fields), set(options), file)


def _read_option(action: argparse.Action, value: Any, file: Path) -> Any:
    """Return a value of the file as argparse would have read it."""
    if value is None:
        return action.default
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise UserError(f"{file}: {action.dest} must be true or false, not {value!r}")
        return value
    if isinstance(value, dict):
        raise UserError(f"{file}: {action.dest} must be one value, not {value!r}")
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    kind = action.type if callable(action.type) else str
    try:
        found = kind(text)
    except ValueError:
        raise UserError(f"{file}: {action.dest} cannot be {value!r}") from None
    return [found] if isinstance(action, argparse._AppendAction) else found


def _refuse_misspelt(args: argparse.Namespace, keys: set[str], options: set[str], file: Path) -> None:
    """Refuse a key that is neither an option nor a recipe field; a method of one's own may have any field."""
    from ..methods import METHODS
    from ..recipe import field_names

    may_be_own = any(
        str(word).endswith((".py", ".yaml", ".yml"))
        for word in (args.recipe_fields.get("method"), args.recipe)
    )
    known = options | {field for method in METHODS for field in field_names(method)}
    for key in () if may_be_own else sorted(keys):
        try:
            choose("option or recipe field", key, known)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
