"""A Hub in a local folder: the few requests of huggingface_hub that giving and getting a model takes.

``LocalHub(folder)`` serves ``folder/owner/name/COMMIT/…``; the newest commit and tags are in ``refs.json``.
With HF_ENDPOINT set to its address, the client's real functions talk to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

TOKEN = "hf_of_the_local_hub"
_MODEL = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(/(?P<what>\w+)/(?P<revision>[^/?]+))?")
_FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>[^?]+)")


class LocalHub:
    """Serves while entered; ``requests`` are (method, path) of all that came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        hub = self

        class Handler(_Handler):
            owner = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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

    def refs(self, repo: str) -> dict[str, Any] | None:
        """{"main": commit, "private": …, any tags: commit}, if there is such a repository."""
        file = self.folder / repo / "refs.json"
        return dict(json.loads(file.read_text())) if file.exists() else None

    def set_refs(self, repo: str, **refs: Any) -> None:
        (self.folder / repo).mkdir(parents=True, exist_ok=True)
        (self.folder / repo / "refs.json").write_text(json.dumps((self.refs(repo) or {}) | refs))

    def commit_folder(self, repo: str, revision: str) -> Path | None:
        """The folder of a revision: a commit, a tag or main; the empty commit's folder may be missing."""
        refs = self.refs(repo) or {}
        commit = refs.get(revision, revision)
        return self.folder / repo / commit if commit in refs.values() else None

    def add_commit(self, repo: str, lines: list[dict[str, Any]]) -> str:
        refs = self.refs(repo) or {}
        commit = hashlib.sha1(json.dumps([refs, lines]).encode()).hexdigest()
        folder, before = self.folder / repo / commit, self.folder / repo / refs["main"]
        if before.exists():
            shutil.copytree(before, folder)
        for line in lines:
            if line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                target = folder / line["value"]["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(base64.b64decode(line["value"]["content"]))
        self.set_refs(repo, main=commit)
        return commit


class _Handler(BaseHTTPRequestHandler):
    owner: LocalHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.owner.requests.append((self.command, self.path))
        if found := _MODEL.fullmatch(self.path.partition("?")[0]):
            refs = self.owner.refs(found["repo"])
            if refs is None or (refs.get("private") and not self._allowed()):
                return self._fail(404, "RepoNotFound")
            return self._answer({"id": found["repo"], "private": refs["private"], "sha": refs["main"]})
        if found := _FILE.fullmatch(self.path):
            return self._file(found["repo"], found["revision"], found["name"])
        return self._fail(404, "RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.owner.requests.append((self.command, self.path))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._allowed():
            return self._fail(401, "")
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization', 'me')}/{asked['name']}"
            url = {"url": f"{self.owner.url}/{repo}", "name": repo}
            if self.owner.refs(repo) is not None:
                return self._answer(url, status=409)
            private = asked.get("visibility") == "private" or bool(asked.get("private"))
            self.owner.set_refs(repo, main="0" * 40, private=private)
            return self._answer(url)
        if self.path == "/api/validate-yaml":  # the header of the card
            yaml.safe_load(json.loads(body)["content"].split("---")[1])
            return self._answer({"errors": [], "warnings": []})
        found = _MODEL.fullmatch(self.path.partition("?")[0])
        assert found is not None, self.path
        if found["what"] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return self._answer({"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        assert found["what"] == "commit", self.path
        commit = self.owner.add_commit(found["repo"], [json.loads(line) for line in body.splitlines()])
        url = f"{self.owner.url}/{found['repo']}/commit/{commit}"
        return self._answer({"success": True, "commitOid": commit, "commitUrl": url})

    def _file(self, repo: str, revision: str, name: str) -> None:
        refs = self.owner.refs(repo)
        if refs is None or (refs["private"] and not self._allowed()):
            return self._fail(404, "RepoNotFound")
        folder = self.owner.commit_folder(repo, revision)
        if folder is None:
            return self._fail(404, "RevisionNotFound")
        if not (folder / name).is_file():
            return self._fail(404, "EntryNotFound")
        content = (folder / name).read_bytes()
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        return self._send(200, content, {"ETag": etag, "X-Repo-Commit": folder.name})

    def _allowed(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _fail(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code} if code else {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Not on stderr."""
