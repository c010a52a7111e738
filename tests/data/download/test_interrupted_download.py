"""Cut off, killed or without room, ``gradmix data get`` goes on where it was; nothing is half-written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradmix.data.download import get_data, hub_listing
from gradmix.errors import UserError
from tests.data.download.dataset_hub import DatasetHub
from tests.data.download.pets import FILES, IMAGES, PETS, files_in, names_in
from tests.processes import peak_megabytes


def test_a_connection_that_breaks_off_goes_on_where_it_was(hub: DatasetHub, tmp_path: Path) -> None:
    hub.cut = [1000, 0, 500, 7]
    folder = get_data(PETS, tmp_path / "pets", only="data/*images*")
    assert files_in(folder)[IMAGES] == FILES[IMAGES]
    assert [request.range for request in hub.file_requests()] == [
        None,
        "bytes=1000-",
        "bytes=1000-",
        "bytes=1500-",
        "bytes=1507-",
    ]


def test_a_server_without_ranges_starts_again(hub: DatasetHub, tmp_path: Path) -> None:
    hub.cut, hub.ranges = [1000], False
    assert files_in(get_data(PETS, tmp_path / "pets"))[IMAGES] == FILES[IMAGES]


def test_a_hub_that_breaks_off_for_good_leaves_the_beginning_for_later(
    hub: DatasetHub, tmp_path: Path
) -> None:
    hub.cut = [1000, *[0] * hub_listing.TRIES]
    with pytest.raises(UserError, match=r"broke off after 1,000 of .* the same command goes on from there"):
        get_data(PETS, tmp_path / "pets", only="data/*images*")
    assert not (tmp_path / "pets").exists()
    assert files_in(get_data(PETS, tmp_path / "pets"))[IMAGES] == FILES[IMAGES]
    assert "bytes=1000-" in [request.range for request in hub.file_requests()][hub_listing.TRIES :]


def test_the_beginning_of_another_version_is_thrown_away(hub: DatasetHub, tmp_path: Path) -> None:
    hub.cut = [1000, *[0] * hub_listing.TRIES]
    with pytest.raises(UserError, match="broke off"):
        get_data(PETS, tmp_path / "pets")
    (tmp_path / ".pets.get" / "old").mkdir()
    (tmp_path / ".pets.get" / "old" / "images.npz").write_bytes(b"of an earlier commit")
    newer = bytes(reversed(FILES[IMAGES]))
    hub.repos["me/pets"][IMAGES], hub.commit = newer, "beef" + 36 * "0"
    folder = get_data(PETS, tmp_path / "pets")
    assert files_in(folder)[IMAGES] == newer
    assert not (folder / "old").exists()
    assert json.loads((folder / ".source.json").read_text())["commit"] == hub.commit


def test_files_of_a_killed_download_are_checked_before_they_are_used(hub: DatasetHub, tmp_path: Path) -> None:
    place = tmp_path / ".pets.get" / "data"
    place.mkdir(parents=True)
    (place / Path(IMAGES).name).write_bytes(bytes(len(FILES[IMAGES])))  # as long, but torn
    (tmp_path / ".pets.get" / "README.md").write_bytes(FILES["README.md"])
    assert files_in(get_data(PETS, tmp_path / "pets"))[IMAGES] == FILES[IMAGES]
    assert not [request for request in hub.file_requests() if request.path.endswith("README.md")]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(hub: DatasetHub, tmp_path: Path) -> Start:
    """Start ``gradmix data get`` in a process of its own."""

    def start(*words: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        environment = os.environ | {"HF_ENDPOINT": hub.url, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "gradmix", "data", "get", *words]
        return subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=before,
        )

    return start


def wait_for_part(part: Path, n_bytes: int, process: subprocess.Popen[str]) -> int:
    for _ in range(6000):
        assert process.poll() is None, process.communicate()
        if part.is_file() and part.stat().st_size >= n_bytes:
            return part.stat().st_size
        time.sleep(0.01)
    raise AssertionError("nothing came")


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(hub: DatasetHub, start: Start, tmp_path: Path) -> None:
    large = np.random.default_rng(1).bytes(20 * 2**20)
    hub.repos["me/pets"] = {"a.bin": b"first" * 100, "large.bin": large}
    hub.pause = 0.05
    out = tmp_path / "pets"
    part = tmp_path / ".pets.get" / ".large.bin.part"
    sizes = []
    for n_bytes in (2**20, 3 * 2**20):
        process = start(PETS, "--out", str(out))
        sizes.append(wait_for_part(part, n_bytes, process))
        process.kill()
        process.communicate()
        assert not out.exists()
    hub.pause = 0
    process = start(PETS, "--out", str(out))
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    assert printed == f"{out}\n"
    assert (out / "large.bin").read_bytes() == large
    starts = [int(r.range.strip("bytes=-")) for r in hub.file_requests() if r.range]
    assert len(starts) == 2
    assert all(asked >= size > 0 for asked, size in zip(starts, sizes, strict=True))
    assert len([r for r in hub.file_requests() if r.path.endswith("a.bin")]) == 1
    assert names_in(tmp_path) <= {"pets", ".pets.lock", "hf", "cache"}


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_keeps_what_came(hub: DatasetHub, start: Start, tmp_path: Path) -> None:
    large = np.random.default_rng(1).bytes(4 * 2**20)
    hub.repos["me/pets"] = {"large.bin": large}
    out = tmp_path / "pets"
    limit = 2 * 2**20  # of any file, so that a write fails as on a full disk
    process = start(
        PETS, "--out", str(out), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    printed, errors = process.communicate()
    assert (process.returncode, printed, len(errors.splitlines())) == (2, "", 1), errors
    assert "could not write" in errors
    assert "make room, and the same command goes on from there" in errors
    assert not out.exists()
    process = start(PETS, "--out", str(out))
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert (out / "large.bin").read_bytes() == large
    assert hub.file_requests()[-1].range is not None


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(hub: DatasetHub, tmp_path: Path) -> None:
    peaks = []
    for n, megabytes in enumerate((1, 200)):
        hub.repos["me/pets"] = {"large.bin": bytes(megabytes * 2**20)}
        words = [sys.executable, "-m", "gradmix", "data", "get", PETS, "--out", str(tmp_path / f"pets{n}")]
        peaks.append(peak_megabytes(words, {"HF_ENDPOINT": hub.url, "OMP_NUM_THREADS": "1"}))
    assert peaks[1] < peaks[0] + 50
