"""Checks that several methods make before they are trained."""

from __future__ import annotations

from ..data import ImageSet
from ..errors import UserError


def require_two_classes(images: ImageSet, method: str) -> None:
    """Raise UserError for images of fewer than two classes: there would be nothing to tell apart."""
    if len(images.class_names) < 2:
        only = ", ".join(images.class_names) or "none"
        raise UserError(
            f"method {method} needs at least two classes (here: {only}); add images of another class"
        )
