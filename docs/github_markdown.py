"""The pages are written as GitHub reads Markdown; Python-Markdown wants an empty line before a list or table.

A hook of mkdocs, named in mkdocs.yml.
"""

from __future__ import annotations

import re
from typing import Any

_ITEM = re.compile(r"([-*+]|\d+\.) ")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs calls this with the text of every page."""
    return with_empty_lines(markdown)


def with_empty_lines(text: str) -> str:
    """Put an empty line before every list and table that follows a line of something else.

    >>> with_empty_lines("Two rules:\\n- one,\\n  in two lines\\n- two").split("\\n")
    ['Two rules:', '', '- one,', '  in two lines', '- two']
    """
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and before:
            starts_list = _ITEM.match(line) and not _ITEM.match(before) and not before.startswith(" ")
            starts_table = line.startswith("|") and not before.startswith("|")
            if starts_list or starts_table:
                lines.append("")
        lines.append(line)
    return "\n".join(lines)
