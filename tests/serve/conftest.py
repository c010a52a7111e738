"""One small trained model, and servers of it: in this process, and as a process of its own."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from gradmix.recognition import fit, save
from gradmix.serve.limits import Limits
from gradmix.serve.server import create_app
from gradmix.serve.service import ModelService
from tests.training.tiny import shape_image, tiny_images, tiny_recipe

TOKEN = "correct-horse"
ATTACK_SIDE = 5600  # just below the limit of pixels per image
File = tuple[str, tuple[str, bytes, str]]


def png_of(kind: str, seed: int = 0) -> bytes:
    """A PNG of one coloured shape."""
    return encoded(shape_image(kind, np.random.default_rng(seed)))


def encoded(pixels: np.ndarray, format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def files(*contents: bytes) -> list[File]:
    """As httpx sends them: in the field "images"."""
    return [("images", (f"{i}.png", content, "image/png")) for i, content in enumerate(contents)]


def shapes(kind: str, count: int, seed: int = 0) -> list[File]:
    return files(*(png_of(kind, seed * 1000 + i) for i in range(count)))


@pytest.fixture(scope="session")
def trained_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows bars, discs and squares, and rejects every tenth of them; not to be written to."""
    file = tmp_path_factory.mktemp("served") / "model.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(file.parent / "cache"))
        save(fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25, false_reject=0.1)), file)
    return file


@pytest.fixture
def model(trained_model: Path, tmp_path: Path) -> Path:
    """A copy, to do with as one likes."""
    return Path(shutil.copy(trained_model, tmp_path / "model.safetensors"))


@pytest.fixture
def served(model: Path) -> Iterator[Callable[..., TestClient]]:
    """served(token=…, limits=…, page=…): a client of the application around the model."""
    entered: list[TestClient] = []

    def make(
        token: str | None = None, limits: Limits | None = None, page: bool = False, **options: object
    ) -> TestClient:
        service = ModelService(model, limits or Limits(rate=0), token)
        _, guard = create_app(service, page=page, **options)  # type: ignore[arg-type]
        client = TestClient(guard, base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.__enter__()
        client.service = service  # type: ignore[attr-defined]
        entered.append(client)
        return client

    yield make
    for client in entered:
        client.__exit__(None, None, None)


@contextmanager
def server_process(
    model: Path, *words: str, token: str | None = None, says: str = ""
) -> Iterator[tuple[int, int]]:
    """``gradmix serve`` as a process: (port, its id). It must end with 0.

    Every line on stderr, if there is any, must match ``says``.
    """
    environment = os.environ | ({"GRADMIX_TOKEN": token} if token else {})
    with open(model.with_suffix(".stderr"), "w+") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "gradmix", "serve", str(model), "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            assert found, line + Path(errors.name).read_text()
            yield int(found[1]), server.pid
        finally:
            server.terminate()
            code = server.wait(300)
    assert code == 0
    lines = Path(errors.name).read_text().splitlines()
    assert [line for line in lines if not says or not re.search(says, line)] == []


def resident_megabytes(pid: int) -> float:
    """Memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found, status
    return int(found[1]) / 1024


def webp(side: int) -> bytes:
    """Return a black square of few bytes and many pixels."""
    return encoded(np.zeros((side, side, 3), dtype=np.uint8), "WEBP", quality=1, method=0)
