"""What serving costs: images a second through `gradmix serve` next to the bare network in batches.

    python benchmarks/serve.py [--encoder resnet18] [--clients 64] [--a-request 8] [--rounds 5]

All get the same images in turn, on the same cores. The network alone has them as normalised floats, ready
made, either one batch after the other on all cores, or a batch a core; the faster of both is the measure. The
server gets them as PNG files in forms, from 64 clients at once that run on these cores too: it reads HTTP,
decodes, batches, runs the network, searches the neighbours and writes JSON. The weights are random: they cost
the same. Any answer that is not a 200 with a verdict on each image stops the benchmark.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from gradmix import progress
from gradmix.bench.rounds import take_turns
from gradmix.data import ImageSet
from gradmix.recognition import build_recognizer, save
from gradmix.training import Trained, make_recipe
from gradmix.training.seeds import generator_for
from gradmix.training.session import build_network
from gradmix.views import Normalizer

BARE, BY_CORE, SERVED = "network alone", "network alone, a batch a core", "served"
BATCH = 128
CLASSES, INDEXED = 6, 300
_BOUNDARY = "cut-here"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--stem", default="small")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--images", type=int, default=2048, help="in each turn (default 2048)")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--a-request", type=int, default=8, help="images in one request (default 8)")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    progress.show()
    side = args.image_size
    recipe = make_recipe({"encoder": args.encoder, "stem": args.stem, "image_size": side})
    network = build_network(recipe, CLASSES).eval()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pixels = smooth_images(args.images, side)
    normalizer = Normalizer.fit(pixels)
    labels = torch.arange(CLASSES * INDEXED) % CLASSES
    known = ImageSet(smooth_images(len(labels), side, 1), labels, tuple("abcdef"))
    recognizer = build_recognizer(Trained(network, normalizer, 0, 0.0), known, None, recipe)
    ready = [
        normalizer(pixels[first : first + BATCH]).contiguous(memory_format=torch.channels_last)
        for first in range(0, args.images, BATCH)
    ]
    requests = [
        request_of(pixels[first : first + args.a_request]) for first in range(0, args.images, args.a_request)
    ]

    @torch.inference_mode()
    def run(batches: list[torch.Tensor]) -> None:
        for batch in batches:
            network(batch)

    def by_core() -> None:
        cores = torch.get_num_threads()
        torch.set_num_threads(1)
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(run, [ready[i::cores] for i in range(cores)]))
        torch.set_num_threads(cores)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        save(recognizer, file)
        with running_server(file) as (port, server_pid):
            contestants = {
                BARE: lambda: run(ready),
                BY_CORE: by_core,
                SERVED: lambda: all_answered(port, requests, args.clients),
            }
            work = Processor(server_pid)
            rows = take_turns({one[0]: work.counted(*one) for one in contestants.items()}, BARE, args.rounds)
            memory = resident_megabytes(server_pid)
    best = min(row.seconds for row in rows if row.name != SERVED)
    for row in rows:
        print(
            f"{row.name:30s} {args.images / row.seconds:8.1f} images/s  {best / row.seconds:.2f}    "
            f"{1000 * work.median(row.name) / args.images:.2f} ms of a core an image"
        )
    print(
        f"{args.encoder}, {side} pixels, {args.clients} clients, {args.a_request} images a request, "
        f"{os.cpu_count()} cores, median of {args.rounds}; the server's memory afterwards: {memory:.0f} MB"
    )


class Processor:
    """Seconds of processor time that turns take, of this process and the server's together.

    Where other programs run too, these say more than the clock does.
    """

    def __init__(self, server: int) -> None:
        self._server = Path(f"/proc/{server}/stat")
        self._seconds: dict[str, list[float]] = {}

    def counted(self, name: str, run: Callable[[], object]) -> Callable[[], None]:
        def turn() -> None:
            before = self._now()
            run()
            self._seconds.setdefault(name, []).append(self._now() - before)

        return turn

    def median(self, name: str) -> float:
        return statistics.median(self._seconds[name][1:])  # the first round warms up

    def _now(self) -> float:
        user, system = self._server.read_text().rpartition(")")[2].split()[11:13]
        return time.process_time() + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def smooth_images(count: int, side: int, seed: int = 0) -> torch.Tensor:
    """(count, 3, side, side) uint8: noise blown up, which compresses about as photographs do."""
    noise = torch.rand(count, 3, side // 4, side // 4, generator=generator_for(seed, "bench serve"))
    return (torch.nn.functional.interpolate(noise, size=side, mode="bicubic").clamp(0, 1) * 255).byte()


def request_of(images: torch.Tensor) -> tuple[bytes, int]:
    """A whole HTTP request that asks for verdicts on the images, and how many they are."""
    parts = []
    for i, image in enumerate(images):
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file, "PNG")
        head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="{i}.png"\r\n\r\n'
        parts.append(head.encode() + file.getvalue() + b"\r\n")
    body = b"".join(parts) + f"--{_BOUNDARY}--\r\n".encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\n\r\n"
    )
    return head.encode() + body, len(images)


@contextmanager
def running_server(model: Path) -> Iterator[tuple[int, int]]:
    """`gradmix serve` on a free port, as a process of its own: its port and its id."""
    words = ["serve", str(model), "--port", "0", "--rate", "0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gradmix", *words], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert server.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
        assert found, "the server did not start"
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(60)


def all_answered(port: int, requests: list[tuple[bytes, int]], clients: int) -> None:
    """Every request once, shared by ``clients`` threads with a connection each."""
    left = iter(requests)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def client() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not failures:
                    with lock:
                        request = next(left, None)
                    if request is None:
                        return
                    connection.sendall(request[0])
                    check_answer(*read_answer(connection), request[1])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def read_answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one HTTP answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert found, head
    while len(body) < int(found[1]):
        body += _some(connection)
    return head, body


def check_answer(head: bytes, body: bytes, images: int) -> None:
    assert head.startswith(b"HTTP/1.1 200 "), (head, body)
    verdicts = json.loads(body)["images"]
    assert len(verdicts) == images, body
    assert all("label" in verdict for verdict in verdicts), body


def resident_megabytes(pid: int) -> float:
    """Memory that a process has now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmRSS")


def _some(connection: socket.socket) -> bytes:
    chunk = connection.recv(65536)
    assert chunk, "the server closed the connection"
    return chunk


if __name__ == "__main__":
    main()
