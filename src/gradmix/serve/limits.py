"""How much one client, and all of them together, may ask for."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ..data.decode import MOST_PIXELS
from ..errors import UserError
from .refusal import Refusal

_MOST_CLIENTS = 4096  # remembered by the rate limit; the longest silent one is forgotten first
_BUSY = "the server has more work than it takes on; try again in a moment"


@dataclass(frozen=True)
class Limits:
    """``upload_bytes`` a request, ``images`` a request, ``pixels`` an image, ``rate`` requests a second.

    ``rate`` is a client's, with bursts of twice as many; 0 is no limit. ``waiting_images`` may queue for the
    network, ``held_bytes`` of all uploads together may be in memory, and an upload may take ``seconds``.
    """

    upload_bytes: int = 32 * 2**20
    images: int = 64
    pixels: int = 32_000_000
    rate: float = 50.0
    waiting_images: int = 2048
    held_bytes: int = 256 * 2**20
    seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("upload_bytes", "images", "pixels", "waiting_images", "held_bytes"):
            if getattr(self, name) < 1:
                raise UserError(f"the limit {name} must be at least 1, not {getattr(self, name)}")
        if self.pixels > MOST_PIXELS:
            raise UserError(
                f"the limit pixels must be at most {MOST_PIXELS:,}, as larger images are never read, "
                f"not {self.pixels:,}"
            )
        if not self.rate >= 0:
            raise UserError(f"the rate must be 0 (no limit) or more requests a second, not {self.rate}")

    def check_count(self, images: int) -> None:
        """Refuse a request with more images than one may have."""
        if images > self.images:
            raise Refusal(413, f"{images} images in one request; the limit is {self.images}: send fewer")


class RateLimit:
    """A token bucket a client: ``rate`` requests a second, and as many as two seconds' worth at once.

    >>> limit = RateLimit(1.0, clock=lambda: 0.0)
    >>> [limit.wait("10.0.0.1") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = max(1.0, 2 * rate)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def wait(self, client: str) -> float:
        """Take one token of ``client``; the seconds to wait for one if there is none, else 0."""
        if self.rate <= 0:
            return 0.0
        key, now = client_key(client), self._clock()
        tokens, then = self._buckets.pop(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        enough = tokens >= 1
        self._buckets[key] = (tokens - 1 if enough else tokens, now)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if enough else (1 - tokens) / self.rate

    def __len__(self) -> int:
        return len(self._buckets)


def client_key(address: str) -> str:
    """Whose bucket an address takes from: IPv6 hosts own at least 2⁶⁴ addresses, so their network's.

    >>> client_key("2001:db8::1") == client_key("2001:db8::2")
    True
    >>> client_key("::ffff:10.0.0.1")  # an IPv4 client, where the server listens on ::
    '10.0.0.1'
    """
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(host, ipaddress.IPv4Address):
        return address
    if host.ipv4_mapped:
        return str(host.ipv4_mapped)
    return str(ipaddress.ip_network((int(host), 64), strict=False))


class Budget:
    """A bounded amount (of bytes, of images) that is taken before work begins and given back after it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._lock = threading.Lock()

    def take(self, amount: int) -> None:
        """Reserve ``amount``, or refuse with 503. Into an empty budget anything goes: it would never fit."""
        with self._lock:
            if self.taken and self.taken + amount > self.most:
                raise Refusal(503, _BUSY, retry_after=1)
            self.taken += amount

    def give_back(self, amount: int) -> None:
        with self._lock:
            self.taken -= amount
