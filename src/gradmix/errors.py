"""The one exception for user mistakes, as opposed to bugs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_LIST = 20


class UserError(ValueError):
    """A mistake the user can correct: one line that says what is wrong and what to do.

    The command line prints it without a traceback and exits with 2.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its type if it has none.

    >>> first_line(OSError("no network\\nsee the manual")), first_line(KeyError())
    ('no network', 'KeyError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def choose(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``choices``; else raise, naming the nearest right one.

    >>> choose("mixer", "cutmx", ["gradmix", "cutmix"])
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: no mixer 'cutmx'; did you mean 'cutmix'? (there are: cutmix, gradmix)
    """
    known = sorted(choices)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    sure = bool(difflib.get_close_matches(name, known, n=1, cutoff=0.75))
    # Beside a sure hint, a long list would only hide it.
    listing = "" if sure and len(known) > LONGEST_LIST else f" (there are: {', '.join(known)})"
    raise UserError(f"no {kind} '{name}'{hint}{listing}")
