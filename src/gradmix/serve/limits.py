"""How much one client, and all clients together, may ask for, and how long a request may take.

A few bytes can hold many pixels (5600 x 5600 of one colour fit into a kilobyte), so limits in bytes do not
bound the work. Pixels are limited too: per request, per client and in total. They are counted from the
headers of the images, before anything is decoded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from ..data import MAX_PIXELS
from ..errors import UserError
from .http import HTTPError, Scope

SMALL_REQUEST = 1_000_000  # pixels; decoded in one step, and may exceed the shared limits by _RESERVE
_RESERVE = 1.25  # so that large requests cannot keep small ones out
_PIXELS_PER_SECOND = 20_000_000  # about what a core decodes; for Retry-After
_MOST_CLIENTS = 4096  # remembered by the rate limit; the longest silent one is forgotten first
_BUSY = "the server has more work than it takes on; try again in a moment"
_CONTEXT_KEY = "gradmix.context"
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """All limits of a server.

    Per request: ``upload_bytes``, ``images``, ``request_pixels``, ``seconds`` to arrive, and
    ``answer_seconds`` from then to the response. Per image: ``pixels``. Per client: ``rate`` requests per
    second, with bursts of twice as many (0: no limit), ten times as many for what only reads,
    ``connections`` at once, and ``client_pixels`` being decoded. In total:
    ``total_pixels`` being decoded, ``waiting_images`` queued for the network, ``held_bytes`` of uploads in
    memory.
    """

    upload_bytes: int = 32 * 2**20
    images: int = 64
    pixels: int = 32_000_000
    rate: float = 50.0
    waiting_images: int = 2048
    held_bytes: int = 256 * 2**20
    seconds: float = 30.0
    request_pixels: int = 200_000_000
    client_pixels: int = 200_000_000
    total_pixels: int = 400_000_000
    answer_seconds: float = 30.0
    connections: int = 256

    def __post_init__(self) -> None:
        counts = ("upload_bytes", "images", "pixels", "waiting_images", "held_bytes")
        for name in (*counts, "connections", "request_pixels", "client_pixels", "total_pixels"):
            if getattr(self, name) < 1:
                raise UserError(f"the limit {name} must be at least 1, not {getattr(self, name)}")
        if self.pixels > MAX_PIXELS:
            raise UserError(
                f"the limit pixels must be at most {MAX_PIXELS:,}, as larger images are never read, "
                f"not {self.pixels:,}"
            )
        if not self.rate >= 0:
            raise UserError(f"the rate must be 0 (no limit) or more requests a second, not {self.rate}")
        if not 0 < self.answer_seconds < math.inf:
            raise UserError(f"the deadline must be more than 0 seconds, not {self.answer_seconds}")

    def check_count(self, images: int) -> None:
        """Raise 413 for a request with too many images."""
        if images > self.images:
            raise HTTPError(413, f"{images} images in one request; the limit is {self.images}: send fewer")


class RateLimit:
    """One token bucket per client: ``rate`` requests per second, and up to two seconds' worth at once.

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
        """Take one token of ``client`` and return 0, or the seconds to wait if there is none."""
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
    """Return what identifies a client: its IPv4 address, or its IPv6 network of 2⁶⁴ addresses.

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
        """Reserve ``amount``, or raise 503. An empty budget accepts any amount, which would never fit."""
        with self._lock:
            if self.taken and self.taken + amount > self.most:
                raise HTTPError(503, _BUSY, retry_after=1)
            self.taken += amount

    def give_back(self, amount: int) -> None:
        with self._lock:
            self.taken -= amount


class PixelBudget:
    """Pixels that are being decoded or wait for it, limited per client and in total."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, client: str, pixels: int) -> None:
        """Reserve ``pixels`` for ``client``, or raise: 413 is permanent, 429 and 503 are temporary.

        An empty budget accepts whatever one request may have; it would never fit otherwise.
        """
        limits, key = self._limits, client_key(client)
        if pixels > limits.request_pixels:
            raise HTTPError(
                413,
                f"the images come to {pixels:,} pixels; the limit of a request is {limits.request_pixels:,} "
                "(--max-request-pixels): send fewer or smaller images",
            )
        factor = _RESERVE if pixels <= SMALL_REQUEST else 1.0
        with self._lock:
            own = self._clients[key]
            if own and own + pixels > factor * limits.client_pixels:
                raise HTTPError(
                    429,
                    f"your other requests have {own:,} pixels in work; the limit of a client is "
                    f"{limits.client_pixels:,} (--max-client-pixels): wait for their answers",
                    retry_after=_seconds_for(own),
                )
            if self.taken and self.taken + pixels > factor * limits.total_pixels:
                raise HTTPError(
                    503,
                    f"the server has {self.taken:,} pixels in work; its limit is {limits.total_pixels:,} "
                    "(--max-total-pixels): try again in a moment",
                    retry_after=_seconds_for(self.taken),
                )
            self.taken += pixels
            if pixels:  # a client with no pixels in work is not remembered
                self._clients[key] += pixels

    def give_back(self, client: str, pixels: int) -> None:
        with self._lock:
            key = client_key(client)
            self.taken -= pixels
            self._clients[key] -= pixels
            if self._clients[key] <= 0:
                del self._clients[key]

    def __len__(self) -> int:
        """Return the number of clients that have reserved pixels."""
        return len(self._clients)


def _seconds_for(pixels: int) -> int:
    return max(1, min(30, math.ceil(pixels / _PIXELS_PER_SECOND)))


class Deadline:
    """The moment by which a request must be answered, ``seconds`` from now.

    >>> Deadline(5.0, clock=lambda: 0.0).left
    5.0
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that remain, at least 0."""
        return max(0.0, self._end - self._clock())

    def error(self) -> HTTPError:
        """Return the error that the client gets when the deadline has passed."""
        return HTTPError(
            503,
            f"there was no answer within {self.seconds:g} s (--deadline); try again later, or send less",
            retry_after=5,
        )

    def check(self) -> None:
        """Raise the error if the deadline has passed."""
        if not self.left:
            raise self.error()

    async def wait(self, work: Future[T], finish: bool = False) -> T:
        """Return the result of ``work``, or cancel it and raise when the deadline passes.

        ``finish``: once the work has begun, wait for it however long it takes.
        """
        waiting = asyncio.wrap_future(work)
        done, _ = await asyncio.wait({waiting}, timeout=self.left)
        if not done and (work.cancel() or not finish):
            waiting.cancel()
            raise self.error()
        return await waiting

    def wait_in_thread(self, work: Future[T]) -> T:
        """Do the same as :meth:`wait`, blocking the calling thread."""
        try:
            return work.result(self.left)
        except TimeoutError:
            work.cancel()
            raise self.error() from None


@dataclass(frozen=True)
class RequestContext:
    """The client's address and the deadline of its request."""

    client: str = ""
    deadline: Deadline = field(default_factory=lambda: Deadline(60.0))


def set_context(scope: Scope, context: RequestContext) -> None:
    """Store the context in the ASGI scope of a request, for :func:`get_context`."""
    scope[_CONTEXT_KEY] = context


def get_context(scope: Scope) -> RequestContext:
    """Return the context of a request, or a default one if none was stored."""
    found = scope.get(_CONTEXT_KEY)
    return found if isinstance(found, RequestContext) else RequestContext()
