"""Which files a data set of the Hub has, with their sizes and checksums, as the Hub's API lists them."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import UserError
from ..file_names import leaves_folder
from .dataset_address import DatasetAddress
from .hub_requests import BROKEN, TryAgain, endpoint, open_url

TRIES = 4
FIRST_PAUSE = 0.5  # seconds; each further one is twice as long
_MAX_ANSWER = 64 * 2**20
_MAX_FILES = 2_000_000
_NEXT = re.compile(r'<(?P<url>[^>]+)>;\s*rel="next"')
_HEX = {"sha256": re.compile("[0-9a-f]{64}"), "git-sha1": re.compile("[0-9a-f]{40}")}
T = TypeVar("T")


@dataclass(frozen=True)
class HubFile:
    """A file: its path in the repository, its bytes, and the checksum that the Hub gives.

    ``algorithm`` is "sha256" for large files, or "git-sha1", which git names small ones by: the SHA-1 of
    "blob SIZE", a zero byte, and the content.
    """

    path: str
    size: int
    algorithm: str
    checksum: str


def list_files(address: DatasetAddress) -> tuple[str, list[HubFile]]:
    """Return the commit that ``address`` means now, and its files."""
    base = f"{endpoint()}/api/datasets/{address.repo}"
    about, _ = _ask(f"{base}/revision/{_quote(address.revision)}", address)
    commit = about.get("sha") if isinstance(about, dict) else None
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40}", commit):
        raise UserError(f"the Hub's answer about {address} names no commit")
    url: str | None = f"{base}/tree/{commit}?recursive=true"
    files: list[HubFile] = []
    while url is not None:
        page, url = _ask(url, address)
        if not isinstance(page, list) or len(files) + len(page) > _MAX_FILES:
            raise UserError(f"the Hub's list of the files of {address} cannot be read")
        files += [_parse(entry, address) for entry in page if _is_file(entry)]
    return commit, files


def file_url(address: DatasetAddress, commit: str, path: str) -> str:
    return f"{endpoint()}/datasets/{address.repo}/resolve/{commit}/{urllib.parse.quote(path)}"


def try_often(work: Callable[[], T], what: str) -> T:
    """Return ``work()``; where it raises TryAgain, pause and try again, a few times."""
    for i in range(TRIES):
        try:
            return work()
        except TryAgain as error:
            if i == TRIES - 1:
                raise UserError(f"{what} cannot be downloaded: the Hub is out of reach ({error})") from error
            time.sleep(FIRST_PAUSE * 2**i)
    raise AssertionError  # the last try returns or raises


def _ask(url: str, address: DatasetAddress) -> tuple[Any, str | None]:
    """Return the JSON at ``url``, and the address of the next page if there is one."""

    def ask() -> tuple[bytes, str]:
        try:
            with open_url(url, str(address)) as answer:
                return answer.read(_MAX_ANSWER + 1), answer.headers.get("Link", "")
        except BROKEN as error:
            raise TryAgain(str(error) or type(error).__name__) from error

    content, links = try_often(ask, str(address))
    try:
        if len(content) > _MAX_ANSWER:
            raise ValueError
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the Hub's answer about {address} cannot be read") from error
    following = _NEXT.search(links)
    if following is None:
        return found, None
    following_url = urllib.parse.urljoin(url, following["url"])
    if urllib.parse.urlsplit(following_url)[:2] != urllib.parse.urlsplit(url)[:2]:
        raise UserError(f"the Hub's list of the files of {address} goes on at another host; it is refused")
    return found, following_url


def _is_file(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "file"


def _parse(entry: dict[str, Any], address: DatasetAddress) -> HubFile:
    lfs = entry.get("lfs")
    if isinstance(lfs, dict):
        algorithm, checksum, size = "sha256", lfs.get("oid"), lfs.get("size")
    else:
        algorithm, checksum, size = "git-sha1", entry.get("oid"), entry.get("size")
    path = entry.get("path")
    if not isinstance(path, str) or not isinstance(checksum, str) or type(size) is not int or size < 0:
        raise UserError(f"the Hub's list of the files of {address} cannot be read")
    checksum = checksum.removeprefix("sha256:")
    if not _HEX[algorithm].fullmatch(checksum):
        raise UserError(f"the Hub gives no checksum of {path!r} in {address}; it is refused")
    if leaves_folder(path):
        raise UserError(f"{address} has a file {path!r}, which would be written outside its folder; refused")
    return HubFile(path, size, algorithm, checksum)


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")
