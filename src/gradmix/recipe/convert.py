"""Conversion of YAML's values and the command line's words to the types of a recipe's fields."""

from __future__ import annotations

import types
import typing
from typing import Any

from ..errors import UserError


def convert(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` (from YAML or the command line) as ``kind``; raise UserError naming the field.

    >>> convert("milestones", "0.3+0.6", tuple[float, ...])
    (0.3, 0.6)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or value in ("none", "null", ""):
            return None
        return convert(name, value, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        items = value.replace("+", ",").split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        if arguments[-1] is not Ellipsis and len(items) != len(arguments):
            raise UserError(f"{name} takes {len(arguments)} values, not {value!r}; for example 0.2,1.0")
        return tuple(convert(name, i.strip() if isinstance(i, str) else i, arguments[0]) for i in items)
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false", "yes", "no", "1", "0"):
            return str(value).lower() in ("true", "yes", "1")
        raise UserError(f"{name} must be true or false, not {value!r}")
    if value is None:
        raise UserError(f"{name} must be {_describe_type(kind)}, not empty")
    try:
        converted = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} must be {_describe_type(kind)}, not {value!r}") from None
    if kind is int and isinstance(value, float) and value != converted:
        raise UserError(f"{name} must be a whole number, not {value!r}")
    return converted


def _describe_type(kind: Any) -> str:
    """Return the words for a type in an error message."""
    return {int: "a whole number", float: "a number", str: "text"}.get(kind, str(kind))
