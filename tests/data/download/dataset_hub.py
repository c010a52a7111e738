"""Data sets of a Hub on this machine: the API's lists, and files by HTTP Range, with faults on request.

``DatasetHub({"me/pets": {"data/train.parquet": b"…"}})`` serves while entered. With HF_ENDPOINT set to its
address, the Hub's own client works with it too, which shows that it answers as the Hub does.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

TOKEN = "hf_of_the_dataset_hub"
LARGE = 100  # bytes; larger files are listed with their SHA-256, as those in LFS are
_API = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)/(?P<what>revision|tree)/(?P<revision>[^/?]+)")
_FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class Request:
    path: str
    range: str | None
    token: str | None


@dataclass
class DatasetHub:
    """The faults: each is looked at anew at every request.

    ``cut`` has numbers of bytes after which the next answers break off; ``pause`` is waited after each of
    many small chunks; ``spoil`` changes the content of what it names; ``elsewhere`` is the host to which
    files are redirected; ``status`` is answered instead.
    """

    repos: dict[str, dict[str, bytes]]
    commit: str = "c0ffee" + 34 * "0"
    page: int = 1000
    private: bool = False
    ranges: bool = True
    cut: list[int] = field(default_factory=list)
    pause: float = 0.0
    spoil: set[str] = field(default_factory=set)
    elsewhere: str = ""
    status: list[int] = field(default_factory=list)
    listing: Any = None
    next_page: str = ""
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        hub = self

        class Handler(_Handler):
            owner = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def file_requests(self) -> list[Request]:
        return [request for request in self.requests if "/resolve/" in request.path]

    def tree(self, repo: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        folders = {name.rpartition("/")[0] for name in self.repos[repo]} - {""}
        entries += [
            {"type": "directory", "path": name, "oid": "0" * 40, "size": 0} for name in sorted(folders)
        ]
        for name, content in self.repos[repo].items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, Any] = {"type": "file", "path": name, "oid": blob, "size": len(content)}
            if len(content) > LARGE:
                sha = hashlib.sha256(content).hexdigest()
                entry["oid"] = "1" * 40  # of the pointer
                entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return entries


class _Handler(BaseHTTPRequestHandler):
    owner: DatasetHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub = self.owner
        token = self.headers.get("Authorization")
        hub.requests.append(Request(self.path, self.headers.get("Range"), token))
        path, _, query = self.path.partition("?")
        if hub.status:
            return self._send(hub.status.pop(0), b"{}", {})
        if path.startswith("/cdn/"):
            return self._content(urllib.parse.unquote(path.removeprefix("/cdn")))
        if hub.private and token != f"Bearer {TOKEN}":
            return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if found := _API.fullmatch(path):
            return self._api(found, urllib.parse.parse_qs(query))
        if _FILE.fullmatch(path) and hub.elsewhere and self.command == "GET":
            return self._send(302, b"", {"Location": f"{hub.elsewhere}/cdn{path}"})
        return self._content(urllib.parse.unquote(path))

    do_HEAD = do_GET

    def _api(self, found: re.Match[str], query: dict[str, list[str]]) -> None:
        hub, repo = self.owner, found["repo"]
        revision = urllib.parse.unquote(found["revision"])
        if repo not in hub.repos:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", hub.commit):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if found["what"] == "revision":
            return self._json({"id": repo, "sha": hub.commit})
        entries, first = hub.tree(repo), int(query.get("cursor", ["0"])[0])
        headers = {}
        if first + hub.page < len(entries):
            path = self.path.partition("?")[0]
            url = hub.next_page or f"{hub.url}{path}?recursive=true&cursor={first + hub.page}"
            headers["Link"] = f'<{url}>; rel="next"'
        return self._json(hub.listing or entries[first : first + hub.page], headers)

    def _content(self, path: str) -> None:
        hub, found = self.owner, _FILE.fullmatch(path)
        content = hub.repos.get(found["repo"], {}).get(found["name"]) if found else None
        if found is None or content is None:
            return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        if found["name"] in hub.spoil:
            content = content[:-1] + bytes([content[-1] ^ 1])
        etag = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": hub.commit, "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and hub.ranges:
            start = int(wanted[1])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self._send(206, content[start:], headers)
        return self._send(200, content, headers)

    def _json(self, content: Any, headers: dict[str, str] | None = None) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        is_file = "ETag" in headers
        if is_file and self.owner.cut:
            self.wfile.write(body[: self.owner.cut.pop(0)])
            self.close_connection = True
        elif is_file and self.owner.pause:
            try:
                for first in range(0, len(body), 2**16):
                    self.wfile.write(body[first : first + 2**16])
                    self.wfile.flush()
                    time.sleep(self.owner.pause)
            except OSError:
                self.close_connection = True  # the client was killed
        else:
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Not on stderr."""
