"""The Dockerfile, as far as it can be checked where no engine is: parsed, and each promise looked for."""

from __future__ import annotations

import argparse
import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmix.cli import serve
from gradmix.serve.access import HostPolicy, read_token

ROOT = Path(__file__).parents[1]
KNOWN = {
    *("FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "ENV"),
    *("EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, what follows), with continued lines joined and comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(words[0], words[1]) for words in (line.split(maxsplit=1) for line in joined)]


def of_kind(kind: str) -> list[str]:
    return [rest for name, rest in instructions() if name == kind]


def copied() -> list[str]:
    """Return the paths that are copied from the repository."""
    return [path for rest in of_kind("COPY") if "--from=" not in rest for path in rest.split()[:-1]]


def test_every_instruction_is_one() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    assert instructions()[0][0] == "FROM"


def test_base_images_are_pinned() -> None:
    for rest in of_kind("FROM"):
        assert re.match(r"python:3\.\d+\.\d+-slim-\w+( AS \w+)?$", rest), rest
    stages = [rest.split(" AS ")[1] for rest in of_kind("FROM") if " AS " in rest]
    assert all(re.search(r"--from=(\w+)", r)[1] in stages for r in of_kind("COPY") if "--from" in r)  # type: ignore[index]
    assert len({rest.split()[0] for rest in of_kind("FROM")}) == 1  # what was built runs where it was built
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"


def test_everything_copied_is_there_and_let_in() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [rule for rule in ignore if rule and not rule.startswith("#")]
    assert rules[0] == "*"  # nothing but what is named
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert copied()
    for path in copied():
        assert (ROOT / path).exists(), path
    assert let_in == set(copied())


def test_what_the_build_reads_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    needed |= {
        Path(package).parts[0]
        for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert needed <= set(copied())


def test_packages_come_by_the_constraints() -> None:
    installs = [rest for rest in of_kind("RUN") if "pip install" in rest]
    assert installs
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in installs:
        assert "-c constraints.txt" in line
        assert "--no-cache-dir" in line
        found = re.search(r'"\.\[([\w,]+)\]"', line)
        assert found
        assert set(found[1].split(",")) <= set(extras)


def test_it_runs_as_nobody_in_particular_with_a_token(tmp_path: Path) -> None:
    kinds = [name for name, _ in instructions()]
    last = len(kinds) - 1 - kinds[::-1].index("FROM")
    assert "USER" in kinds[last:]
    assert of_kind("USER") == ["gradmix"]
    assert re.search(r"useradd .*\bgradmix$", of_kind("RUN")[-1])
    assert of_kind("ENTRYPOINT") == ['["gradmix"]']
    name, *words = json.loads(of_kind("CMD")[0])
    assert name == "serve"
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    args = parser.parse_args(words)
    assert (args.host, str(args.model)) == ("0.0.0.0", "/model")
    assert of_kind("EXPOSE") == [str(args.port)]
    assert args.token_file is not None
    with pytest.raises(ValueError, match="cannot read the token"):
        read_token(tmp_path / "none")  # so without it nothing is served


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that is well at /healthz, and not found elsewhere."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_health_check_tells_the_well_from_the_ill(port: int) -> None:
    (check,) = of_kind("HEALTHCHECK")
    python, flag, code = json.loads(check.partition("CMD ")[2])
    assert (python, flag) == ("python", "-c")
    assert ":7860/healthz" in code
    HostPolicy.for_address("0.0.0.0").check("127.0.0.1:7860")  # raises where the server would refuse it

    def ends_with(path: str) -> int:
        changed = code.replace(":7860/healthz", f":{port}{path}")
        return subprocess.run([sys.executable, "-c", changed], capture_output=True).returncode

    assert ends_with("/healthz") == 0
    assert ends_with("/elsewhere") != 0


def test_the_page_says_how() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    _, *words = json.loads(of_kind("CMD")[0])
    assert f":{words[0]}:ro" in page  # the model, read-only
    assert f":{words[-1]}:ro" in page  # the token
    assert "docker build -t gradmix ." in page
