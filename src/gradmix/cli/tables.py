"""Tables on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_AS_WIDE_AS_NEEDED = 10_000


def print_table(table: Table) -> None:
    """Fitted to a terminal; in a file or a pipe nothing is cut off or wrapped, whatever its width."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _AS_WIDE_AS_NEEDED).print(table)
