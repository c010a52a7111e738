"""Addresses of data sets on the Hub: ``hf://datasets/owner/name``, or with ``@revision``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import UserError
from ...hub_file import check_repo

_PREFIX = re.compile(r"hf:/+datasets/")


@dataclass(frozen=True)
class DatasetAddress:
    """A data set ``owner/name`` of the Hub, and which revision of it: a commit, a tag, a branch."""

    repo: str
    revision: str = "main"

    @property
    def name(self) -> str:
        return self.repo.partition("/")[2]

    def __str__(self) -> str:
        return f"hf://datasets/{self.repo}" + ("" if self.revision == "main" else f"@{self.revision}")


def parse_dataset_address(text: str) -> DatasetAddress | None:
    """Return the address that ``text`` is; None if it is the name of something else.

    >>> parse_dataset_address("hf://datasets/me/otters@v2"), parse_dataset_address("mnist")
    (DatasetAddress(repo='me/otters', revision='v2'), None)
    """
    found = _PREFIX.match(text)
    if found is None:
        if text.startswith("hf:"):
            raise UserError(f"'{text}' is not a data set of the Hub; give hf://datasets/owner/name")
        return None
    repo, _, revision = text[found.end() :].partition("@")
    return DatasetAddress(check_repo(repo.rstrip("/")), revision or "main")
