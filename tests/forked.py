"""Commands in processes of their own that start at once: forked from one that has imported torch.

Importing torch takes seconds. One process does it, and forks for each command it is sent. It has no threads,
computes nothing itself, and has not imported what reads its settings from the environment: what it forks is
as good as a process of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SERVER = """
import json, os, sys, traceback
import gradmix.batch, gradmix.cli, gradmix.data, gradmix.evaluation, gradmix.recognition, gradmix.training
try:
    import torch.utils.tensorboard
except ImportError:
    pass
from gradmix.recognition import load
from gradmix.training import train

assert "huggingface_hub" not in sys.modules  # it reads $HF_ENDPOINT when it is imported

def become(asked):
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = asked["words"]
    if asked["code"]:
        exec(compile(asked["code"], "<code>", "exec"), {"__name__": "__main__"})
        return 0
    return gradmix.cli.main(sys.argv[1:])

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = become(json.loads(line))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int | None) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code or 0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass
class Forked:
    """A started command."""

    pid: int
    server: subprocess.Popen[str]
    stdout: Path
    stderr: Path
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        assert self.server.stdout is not None
        if self.returncode is None and select.select([self.server.stdout], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            assert self.server.stdout is not None
            self.returncode = int(self.server.stdout.readline())
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; return what it printed."""
        self.wait()
        return self.stdout.read_text(), self.stderr.read_text()


class ForkServer:
    """Starts one command at a time."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self.server, self.folder = server, folder

    def start(
        self,
        *words: str | Path,
        code: str = "",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """Start ``gradmix WORDS``, or the Python ``code`` with WORDS as its arguments."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        said = {name: self.folder / name for name in ("stdout", "stderr")}
        asked = {
            "words": ["-c" if code else "gradmix", *map(str, words)],
            "code": code,
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            **{name: str(file) for name, file in said.items()},
        }
        self.server.stdin.write(json.dumps(asked) + "\n")
        self.server.stdin.flush()
        return Forked(int(self.server.stdout.readline()), self.server, **said)

    def run(self, *words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; the arguments are those of :meth:`start`."""
        started = self.start(*words, **more)  # type: ignore[arg-type]
        out, err = started.communicate()
        return subprocess.CompletedProcess([str(word) for word in words], started.wait(), out, err)


@contextmanager
def fork_server(folder: Path) -> Iterator[ForkServer]:
    """What the commands print goes through files in ``folder``."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield ForkServer(server, folder)
    finally:
        server.kill()
        server.communicate()
