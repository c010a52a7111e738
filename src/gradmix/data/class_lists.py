"""Bring the classes of a folder and those of a model together, or say how they differ."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..errors import UserError
from .imageset import ImageSet

_NAMES_SHOWN = 5


def match_classes(
    images: ImageSet, class_names: Sequence[str], where: str, whose: str = "the model"
) -> ImageSet:
    """Return ``images`` labelled in the order of ``class_names``; raise if the classes are not the same.

    ``where`` names the images and ``whose`` the owner of the class names, for the error.
    """
    missing = [name for name in class_names if name not in images.class_names]
    foreign = [name for name in images.class_names if name not in class_names]
    if not missing and not foreign:
        return images.only([images.class_names.index(name) for name in class_names])
    raise UserError(f"the classes of {where} are not those of {whose}: {_differences(missing, foreign)}")


def _differences(missing: list[str], foreign: list[str]) -> str:
    """Return the classes that one side lacks, with the nearest name where a folder may be misspelt.

    >>> _differences(["dog", "cat"], ["dgo"])
    "no images of 'dog', 'cat'; 'dgo' is not known (perhaps 'dog' is meant)"
    """
    parts = []
    if missing:
        parts.append(f"no images of {_quoted(missing)}")
    if foreign:
        near = difflib.get_close_matches(foreign[0], missing, n=1)
        hint = f" (perhaps '{near[0]}' is meant)" if near else ""
        parts.append(f"{_quoted(foreign)} {'is' if len(foreign) == 1 else 'are'} not known{hint}")
    return "; ".join(parts)


def _quoted(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN]) + more
