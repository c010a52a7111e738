"""Who may talk to a server on one's own machine: not a web page from somewhere else.

A browser sends requests to 127.0.0.1 for any page that asks it to. Two headers tell: ``Host`` (a name that
was made to resolve to this machine is not one of ours: DNS rebinding) and ``Origin`` (the page that asks).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

from .refusal import Refusal, one_line

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/\\\s]+)(?::\d{1,5})?", re.IGNORECASE)
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_names(host: str, more: Collection[str] = ()) -> frozenset[str]:
    """Names under which a server that listens on ``host`` is known; others are refused."""
    names = _LOCAL_NAMES | {host.lower()} | {name.lower() for name in more}
    return names if is_loopback(host) else names | {socket.gethostname().lower(), socket.getfqdn().lower()}


def check_host(host: str | None, names: Collection[str], listens_beyond: bool) -> None:
    """Refuse a Host header that is not this server's; addresses always are, where others may come in."""
    found = _HOST.fullmatch(host or "")
    name = found[1].strip("[]").lower() if found else ""
    if name in names or (listens_beyond and _is_address(name)):
        return
    raise Refusal(
        421, f"this server is not called {one_line(host or 'nothing', 80)!r}; add --allow-host if it is"
    )


def check_origin(origin: str | None, fetch_site: str | None, host: str | None) -> None:
    """Refuse what a page of another site sends; programs send no Origin and pass."""
    own = {f"{scheme}://{(host or '').lower()}" for scheme in ("http", "https")}
    if origin is not None and origin.lower() not in own:
        raise Refusal(403, "this request comes from a page of another site")
    if origin is None and fetch_site == "cross-site":
        raise Refusal(403, "this request comes from a page of another site")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
