"""Requests to the Hub: where it is, who asks, and what its errors mean."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any

from ...errors import UserError, first_line

_DEFAULT_ENDPOINT = "https://huggingface.co"
_SECONDS_OF_SILENCE = 30.0
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
# Errors of a connection that broke off, or was never made.
BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class TryAgain(Exception):
    """The Hub or the network failed for now; the text says how."""


def endpoint() -> str:
    """Return the address of the Hub: $HF_ENDPOINT, or the public one."""
    given = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _DEFAULT_ENDPOINT
    if urllib.parse.urlsplit(given).scheme not in ("http", "https"):
        raise UserError(f"HF_ENDPOINT is '{given}'; give an address that begins with https://")
    return given


def open_url(url: str, what: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """Return the answer to a GET; ``what`` names the data set, for errors.

    Raise TryAgain where another try may help, and UserError where it will not.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise UserError(f"{what} cannot be downloaded: HF_HUB_OFFLINE is set")
    token = _token()
    sent = {"User-Agent": "gradmix", "Accept-Encoding": "identity", **(headers or {})}
    if token:
        sent["Authorization"] = f"Bearer {token}"
    try:
        answer: http.client.HTTPResponse = _OPENER.open(
            urllib.request.Request(url, headers=sent), timeout=_SECONDS_OF_SILENCE
        )
        return answer
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _TRY_AGAIN:
            raise TryAgain(f"it answers {error.code} {error.reason}") from error
        raise UserError(_explain(error.code, what)) from error
    except BROKEN as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise TryAgain(str(reason).strip() or type(error).__name__) from error
    except ValueError as error:  # an address that is none
        raise UserError(f"{what} cannot be downloaded ({first_line(error)})") from error


def _explain(code: int, what: str) -> str:
    if code in (401, 403):
        return f"the Hub does not give you {what}; ask for access on its page, and log in with: hf auth login"
    if code == 404:
        return f"the Hub has no {what}, or not for you; if it is private, log in with: hf auth login"
    return f"the Hub refuses {what} (it answers {code})"


def _token() -> str | None:
    """Return the token of the user's log-in, or of $HF_TOKEN."""
    try:
        from huggingface_hub import get_token
    except ImportError:
        return os.environ.get("HF_TOKEN") or None
    token: str | None = get_token()
    return token


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but tell the token to no other host: files lie with a delivery network."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and urllib.parse.urlsplit(newurl)[:2] != urllib.parse.urlsplit(req.full_url)[:2]:
            new.remove_header("Authorization")
        return new


def _make_opener() -> urllib.request.OpenerDirector:
    """Return an opener of http and https alone; the usual one opens local files too."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


_OPENER = _make_opener()
