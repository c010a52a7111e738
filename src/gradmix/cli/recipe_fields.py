"""``--epochs 5 --mixer cutmix``: any field of the recipe as an option."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from ..errors import UserError

SIMILAR_OPTION = 0.8  # a word this similar to an option of the command is not taken for a recipe field


def separate_recipe_fields(words: Sequence[str], own: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Return (the command's own words, recipe fields): a field is any ``--option`` not of the command.

    argparse cannot do this: it would take the value of an unknown option for a positional argument.
    Dashes and underscores are one; an option without a value is true.

    >>> separate_recipe_fields(["photos", "--epochs", "5", "--out", "run", "--batch-size=64"], ["--out"])
    (['photos', '--out', 'run'], {'epochs': '5', 'batch_size': '64'})
    """
    command: list[str] = []
    fields: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        if not word.startswith("--") or name in own or word == "--":
            command.append(word)
            continue
        near = difflib.get_close_matches(name, own, n=1, cutoff=SIMILAR_OPTION)
        if near:
            raise UserError(f"no option {name}; did you mean {near[0]}?")
        if not has_value:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        fields[name[2:].replace("-", "_")] = value
    return command, fields
