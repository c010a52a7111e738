"""``gradmix serve``: mistakes in one line before anything listens, and a clean end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradmix.cli import main

Refused = Callable[..., str]


def test_mistakes(run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADMIX_TOKEN", raising=False)
    assert "no model at nowhere" in refused("serve", "nowhere")
    assert "MODEL" in refused("serve")
    assert "cannot read the token from nowhere" in refused("serve", run, "--token-file", "nowhere")
    monkeypatch.setenv("GRADMIX_TOKEN", "short")
    assert "$GRADMIX_TOKEN must be 8 or more" in refused("serve", run)
    monkeypatch.delenv("GRADMIX_TOKEN")
    assert "upload_bytes must be at least 1" in refused("serve", run, "--max-upload", "0")
    assert "rate" in refused("serve", run, "--rate", "-1")
    assert "request_pixels must be at least 1" in refused("serve", run, "--max-request-pixels", "0")
    assert "deadline must be more than 0" in refused("serve", run, "--deadline", "0")
    assert "invalid int value" in refused("serve", run, "--port", "http")
    assert "cannot listen on 127.0.0.1:99999" in refused("serve", run, "--port", "99999")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refused("serve", run, "--port", str(port))
    (run / "model.safetensors").write_bytes(b"broken")
    assert "truncated or not a model file" in refused("serve", run)


def test_without_the_extra(run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name in ("prometheus_client", "uvicorn") else find_spec(name)

    monkeypatch.setattr("gradmix.cli.serve.find_spec", found)
    line = refused("serve", run)
    assert line == "gradmix: gradmix serve needs uvicorn, prometheus_client; pip install 'gradmix[serve]'"


def test_help_tells_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    for word in ("--host", "--token-file", "--max-upload", "--max-pixels", "--rate", "127.0.0.1"):
        assert word in text
    for word in (
        "--max-request-pixels",
        "--max-client-pixels",
        "--max-total-pixels",
        "--deadline",
        "400,000,000",
    ):
        assert word in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_answers_then_ends_cleanly(run: Path, number: signal.Signals) -> None:
    words = [sys.executable, "-m", "gradmix", "serve", str(run), "--port", "0", "--host", "0.0.0.0"]
    words += ["--token", "none"]
    environment = {key: value for key, value in os.environ.items() if key != "GRADMIX_TOKEN"}
    server = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"\(3 classes\) at http://0\.0\.0\.0:(\d+)/", line)
    assert found, line
    with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/healthz") as answer:
        assert answer.status == 200
    server.send_signal(number)
    out, err = server.communicate(timeout=300)
    assert (server.returncode, out) == (0, "")
    assert "listening on 0.0.0.0 without a token" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
