"""Docstrings as this project writes them, made ready for a Markdown page.

Examples (`>>> …`) stand in the running text, where Markdown would take them for quotations, and references
are roles (`:func:`nt_xent``), which Markdown does not know.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod):`[.~]?([^`]+)`")


class Docstrings(griffe.Extension):
    """Named in mkdocs.yml; griffe calls it for every object that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(_ROLE.sub(r"`\1`", obj.docstring.value))


def fenced(text: str) -> str:
    """Put every example, from ``>>>`` to the next empty line, into a code block.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nNothing else.").split("\\n\\n")
    ['Adds.', '```pycon\\n>>> 1 + 1\\n2\\n```', 'Nothing else.']
    """
    blocks = re.split(r"\n[ \t]*\n", text)
    return "\n\n".join(
        f"```pycon\n{block}\n```" if block.lstrip().startswith(">>>") else block for block in blocks
    )
