"""A disk that is full in the middle of a checkpoint: the previous one stays, and the run goes on from it."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gradmix.training import RunFolder
from tests.training.real_runs import assert_same_end, environment, finish, signal_when_at, start, train_words

pytestmark = pytest.mark.slow


def assert_refused_in_one_line(code: int, err: str, culprit: str) -> None:
    assert code == 2, err
    assert "Traceback" not in err
    assert f"gradmix: could not write {culprit}" in err
    assert len([line for line in err.splitlines() if "could not write" in line]) == 1


def assert_resumes(place: Path, out: str) -> None:
    code, err = finish(start(place, "--resume", "--out", out))
    assert code == 0, err
    assert_same_end(place, out)


def test_a_checkpoint_that_outgrows_the_limit_keeps_the_previous_one(place: Path) -> None:
    """The system's limit on the size of a file: works for everyone, and the writer sees a failed write."""
    run = RunFolder(place / "limited")
    process = start(place, *train_words("limited"))
    signal_when_at(process, run, 9, signal.SIGKILL)
    finish(process)
    before = run.state_file.read_bytes()
    limit = len(before) // 2
    limited = start(
        place,
        *("--resume", "--out", "limited"),
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    code, err = finish(limited)
    assert_refused_in_one_line(code, err, "limited/last.pt")
    assert run.state_file.read_bytes() == before
    assert not list(run.path.glob(".*"))
    assert_resumes(place, "limited")


# The command itself, but from the second checkpoint on fsync, the last moment at which a full disk can
# show, says that it is full.
FULL_AT_THE_SECOND = """
import errno, os, sys, tempfile
import gradmix.cli
checkpoints = []
make, sync = tempfile.mkstemp, os.fsync
def counting(*args, **kwargs):
    made = make(*args, **kwargs)
    checkpoints.extend([made] * ("last.pt" in made[1]))
    return made
def full(handle):
    if len(checkpoints) > 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sync(handle)
tempfile.mkstemp, os.fsync = counting, full
sys.exit(gradmix.cli.main(sys.argv[1:]))
"""


def test_no_space_when_the_bytes_are_to_reach_the_disk(place: Path) -> None:
    command = [sys.executable, "-c", FULL_AT_THE_SECOND, "train", *train_words("synced")]
    done = run_in(place, command)
    assert_kept_the_first_checkpoint(place, done, "synced/last.pt", "synced")


# Mounted for this one command and what it starts, in a space of their own: nobody else sees it. When they
# end it is gone, so the run is copied out.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size="$1" none disk || exit 77
shift
"$@"
code=$?
[ ! -d disk/full ] || cp -r disk/full saved
exit $code
"""


def test_no_space_left_on_a_real_small_disk(place: Path) -> None:
    """With room for one checkpoint and a half, the second does not fit."""
    size = (place / "whole" / "last.pt").stat().st_size * 3 // 2 + 100_000
    command = [sys.executable, "-m", "gradmix", "train", *train_words("disk/full")]
    (place / "disk").mkdir()
    for space in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        mounting = [*space, "sh", "-c", ON_A_SMALL_DISK, "sh", str(size)]
        if shutil.which("unshare") and run_in(place, [*mounting, "true"]).returncode == 0:
            done = run_in(place, [*mounting, *command])
            assert_kept_the_first_checkpoint(place, done, "disk/full/last.pt", "saved")
            return
    pytest.skip("this system lets nobody mount a small disk; the other tests here run everywhere")


def run_in(place: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place, env=environment(place), capture_output=True, text=True, timeout=600
    )


def assert_kept_the_first_checkpoint(
    place: Path, done: subprocess.CompletedProcess[str], culprit: str, out: str
) -> None:
    assert_refused_in_one_line(done.returncode, done.stderr, culprit)
    assert "disk full" in done.stderr or "No space left on device" in done.stderr
    run = RunFolder(place / out)
    state = run.load_state()
    assert state is not None
    assert state["step"] == 1
    assert not run.model_file.exists()
    assert not list(run.path.glob(".*"))
    assert_resumes(place, out)
