"""Weights on the Hub: ``hf://owner/name``, or ``hf://owner/name@revision``, wherever a path goes.

A revision (a commit, a tag) pins what is fetched; without one it is the newest. What was fetched before is
in the Hub's own cache folder and is not fetched again. The file is safetensors: tensors and JSON, nothing
that could be executed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import UserError, first_line

MODEL_FILE = "model.safetensors"
NEEDS = "models on the Hub need the extra 'hub': pip install 'gradmix[hub]'"
_PREFIX = re.compile(r"hf:/+|hub:")  # a Path has one slash; "hub:" is an older spelling in recipes
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class HubAddress:
    """A repository ``owner/name``, and which revision of it (None: the newest)."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf://{self.repo}" + (f"@{self.revision}" if self.revision else "")


def parse_hub_address(path: str | Path) -> HubAddress | None:
    """Return the Hub address that ``path`` is; None if it is an ordinary path.

    >>> parse_hub_address("hf://me/otters@v2"), parse_hub_address("runs/otters")
    (HubAddress(repo='me/otters', revision='v2'), None)
    """
    found = _PREFIX.match(str(path))
    if found is None:
        return None
    repo, _, revision = str(path)[found.end() :].partition("@")
    return HubAddress(check_repo(repo), revision or None)


def check_repo(repo: str) -> str:
    """Return ``repo`` if it has the form ``owner/name``; else raise UserError."""
    if not _REPO.fullmatch(repo):
        raise UserError(f"'{repo}' is no repository of the Hub; give owner/name, or hf://owner/name@revision")
    return repo


def fetch(address: HubAddress, name: str = MODEL_FILE) -> Path:
    """Return the path of a file in the Hub's cache folder; download it if it is not there."""
    found = fetch_if_there(address, name)
    if found is None:
        raise UserError(f"{address} has no {name}")
    return found


def fetch_if_there(address: HubAddress, name: str) -> Path | None:
    """Do what :func:`fetch` does; return None if the repository has no such file."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError:
        raise UserError(NEEDS) from None
    try:
        with quiet_client():
            return Path(hf_hub_download(address.repo, name, revision=address.revision))
    except RepositoryNotFoundError as error:
        raise UserError(
            f"the Hub has no {address.repo}, or not for you; if it is private, log in with: hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise UserError(f"{address.repo} has no revision '{address.revision}'") from error
    except LocalEntryNotFoundError as error:
        raise UserError(f"{address} is not in the Hub's cache folder, and the Hub is out of reach") from error
    except EntryNotFoundError:
        return None
    except Exception as error:  # errors of the network and of the system, each of its own kind
        raise UserError(f"could not fetch {address} ({first_line(error)})") from error


@contextmanager
def quiet_client() -> Iterator[None]:
    """Silence the client's messages about every attempt; the final error is reported by the caller."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
