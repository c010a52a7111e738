"""A trained model, photos, and a place of one's own: those of the command line's tests."""

from __future__ import annotations

from tests.cli.conftest import own_place, photos, refused, run, trained

__all__ = ["own_place", "photos", "refused", "run", "trained"]
