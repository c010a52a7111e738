"""Who may use the server: by which host name, from which web page, and with which token.

A browser sends requests to 127.0.0.1 for any page that asks it to. Two headers show it: ``Host`` (with DNS
rebinding, a foreign name that resolves to this machine) and ``Origin`` (the page that sends the request).
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .http import HTTPError, one_line

TOKEN_VARIABLE = "GRADMIX_TOKEN"
_SHORTEST_TOKEN = 8
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/\\\s]+)(?::\d{1,5})?", re.IGNORECASE)
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class HostPolicy:
    """The host names that the server answers to.

    ``any_address``: it listens beyond this machine, so that any IP address in a ``Host`` header is accepted.
    """

    names: frozenset[str]
    any_address: bool = False

    @classmethod
    def for_address(cls, host: str, more: Collection[str] = ()) -> HostPolicy:
        """Return the policy of a server that listens on ``host`` and has the names ``more`` too."""
        names = _LOCAL_NAMES | {host.lower()} | {name.lower() for name in more}
        if is_loopback(host):
            return cls(names)
        return cls(names | {socket.gethostname().lower(), socket.getfqdn().lower()}, any_address=True)

    def knows(self, host: str | None) -> bool:
        """Return whether a ``Host`` header names this server."""
        found = _HOST.fullmatch(host or "")
        name = found[1].strip("[]").lower() if found else ""
        return name in self.names or (self.any_address and _is_address(name))

    def check(self, host: str | None) -> None:
        """Raise 421 if a ``Host`` header does not name this server."""
        if self.knows(host):
            return
        raise HTTPError(
            421, f"this server is not called {one_line(host or 'nothing', 80)!r}; add --allow-host if it is"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on is reachable from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(
    origin: str | None, fetch_site: str | None, host: str | None, fetch_mode: str | None = None
) -> None:
    """Raise 403 for a request from a page of another site; programs send no ``Origin`` and pass.

    A link on another site may be followed (``fetch_mode`` navigate): that site does not see what it leads to.
    """
    own = {f"{scheme}://{(host or '').lower()}" for scheme in ("http", "https")}
    if origin is not None and origin.lower() not in own:
        raise HTTPError(403, "this request comes from a page of another site")
    if origin is None and fetch_site in ("cross-site", "same-site") and fetch_mode != "navigate":
        raise HTTPError(403, "this request comes from a page of another site")


def drop_forwarded(headers: Sequence[tuple[bytes, bytes]], hosts: HostPolicy) -> list[tuple[bytes, bytes]]:
    """Return the headers without what a client may claim about a proxy in front of the server.

    Believed are the scheme, and a forwarded host that is a name of this server (``--allow-host``): the page
    builds its addresses from them.
    """
    return [
        (name, value)
        for name, value in headers
        if not name.startswith((b"x-forwarded", b"forwarded", b"x-gradio", b"x-direct", b"x-original"))
        or (name == b"x-forwarded-proto" and value in (b"http", b"https"))
        or (name == b"x-forwarded-host" and hosts.knows(value.decode("latin-1")))
    ]


class AccessToken:
    """The token that changes of the model need; without one (None), all changes pass."""

    def __init__(self, token: str | None = None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def required(self) -> bool:
        return self._token is not None

    def check(self, offered: str | None, hint: str = "") -> None:
        """Raise 401 unless ``offered`` is the token. Compared in constant time."""
        if self._token is None:
            return
        if not offered:
            raise HTTPError(401, f"changing the model needs the token{hint}")
        if not hmac.compare_digest(offered.encode("utf-8", "replace"), self._token):
            raise HTTPError(401, "this is not the token")

    def check_header(self, authorization: str | None) -> None:
        """Check the token of an ``Authorization`` header."""
        scheme, _, token = (authorization or "").partition(" ")
        offered = token.strip() if scheme.lower() == "bearer" else None
        self.check(offered, ": send 'Authorization: Bearer TOKEN'")


def read_token(file: Path | None) -> str | None:
    """Return the first line of ``file``, else $GRADMIX_TOKEN, else None.

    The token is not an argument of the command: every user of the machine can read those.
    """
    if file is None:
        token, source = os.environ.get(TOKEN_VARIABLE), f"${TOKEN_VARIABLE}"
        if token is None:
            return None
    else:
        try:
            token, source = file.read_text(encoding="utf-8").partition("\n")[0], str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the token from {file}: {error}") from error
    token = token.strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(
            f"the token in {source} must be {_SHORTEST_TOKEN} or more ASCII characters without spaces"
        )
    return token


def choose_token(host: str, file: Path | None, none: bool) -> tuple[str | None, bool]:
    """Return the token to be used, and whether it was made here: beyond this machine, nobody is without.

    ``none``: the user wants none.
    """
    if none and file is not None:
        raise UserError("give --token-file or --token none, not both")
    token = None if none else read_token(file)
    if token is not None or none or is_loopback(host):
        return token, False
    return secrets.token_urlsafe(18), True


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
