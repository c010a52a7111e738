"""What a class may be called. Imports next to nothing, so that whoever names a class can ask."""

from __future__ import annotations

from ..errors import UserError

UNKNOWN_NAME = "unknown"  # the answer for what is of no known class


def check_name(name: str) -> None:
    """Refuse a name that cannot be printed, or that is the answer for everything else."""
    if not name.strip() or not name.isprintable():
        raise UserError(f"a class needs a name that can be printed, not {name!r}")
    if name == UNKNOWN_NAME:
        raise UserError(f"no class can be called '{UNKNOWN_NAME}': that is the answer for all others")
