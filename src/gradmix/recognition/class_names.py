"""Which names classes may have: names that can be printed, and told apart by whoever reads them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from ..detection import UNKNOWN_NAME
from ..errors import UserError

# Cyrillic and Greek letters that look like Latin ones in most fonts.
_LOOK_ALIKES = str.maketrans(
    dict(
        zip(
            "АВЕКМНОРСТУХІЈЅаеорсухіјѕԁһ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο",
            "ABEKMHOPCTYXIJSaeopcyxijsdh" + "ABEZHIKMNOPTYXo",
            strict=True,
        )
    )
)
_VARIATION_SELECTORS = dict.fromkeys(range(0xFE00, 0xFE10))


def check_name(name: str) -> None:
    """Raise UserError for a class name that cannot be printed, or that is the answer for all others."""
    if not name.strip() or not name.isprintable():
        raise UserError(f"a class needs a name that can be printed, not {name!r}")
    if _visible(name).casefold() == UNKNOWN_NAME:
        raise UserError(f"no class can be called '{name}': that is the answer for all others")


def check_names(names: Iterable[str]) -> None:
    """Raise UserError for a name that no class may have, and for two that look the same.

    Two names that differ in case only are two names: letters are classes, too.

    >>> check_names(["a", "A"])
    >>> check_names(["cafe\\u0301", "caf\\u00e9"])
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: the classes 'cafe\\u0301' and 'caf\\xe9' look the same; rename one
    """
    seen: dict[str, str] = {}
    for name in names:
        check_name(name)
        looks = _visible(name)
        if seen.get(looks) == name:
            raise UserError(f"two classes are called '{name}'")
        if looks in seen:
            raise UserError(f"the classes {seen[looks]!a} and {name!a} look the same; rename one")
        seen[looks] = name


def _visible(name: str) -> str:
    """Return what a reader sees of a name: composed, single spaces, Latin letters for their twins."""
    composed = unicodedata.normalize("NFC", name).translate(_VARIATION_SELECTORS)
    return " ".join(composed.translate(_LOOK_ALIKES).split())
