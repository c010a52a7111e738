"""The token that changing the model needs, once one is set."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from ..errors import UserError
from .refusal import Refusal

ENVIRONMENT = "GRADMIX_TOKEN"
_SHORTEST = 8


class Guard:
    """Lets changes pass that bring the token; without a token set, all of them."""

    def __init__(self, token: str | None = None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def closed(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    def check(self, offered: str | None, hint: str = "") -> None:
        """Refuse with 401 unless ``offered`` is the token. Compared in constant time."""
        if self._token is None:
            return
        if not offered:
            raise Refusal(401, f"changing the model needs the token{hint}")
        if not hmac.compare_digest(offered.encode("utf-8", "replace"), self._token):
            raise Refusal(401, "this is not the token")

    def check_header(self, authorization: str | None) -> None:
        """The same, from an ``Authorization`` header."""
        scheme, _, token = (authorization or "").partition(" ")
        offered = token.strip() if scheme.lower() == "bearer" else None
        self.check(offered, ": send 'Authorization: Bearer TOKEN'")


def read_token(file: Path | None) -> str | None:
    """The token: the first line of ``file``, else $GRADMIX_TOKEN, else none.

    Not an argument of the command: those are shown to every user of the machine.
    """
    if file is None:
        token, where = os.environ.get(ENVIRONMENT), f"${ENVIRONMENT}"
        if token is None:
            return None
    else:
        try:
            token, where = file.read_text(encoding="utf-8").partition("\n")[0], str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the token from {file}: {error}") from error
    token = token.strip()
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the token in {where} must be {_SHORTEST} or more ASCII characters without spaces")
    return token
