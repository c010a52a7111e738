"""``gradmix data get`` against a Hub on this machine: resumed, checked, and nothing half-written."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradmix.cli import main
from gradmix.data import get_data, load_images
from gradmix.data.download import DatasetAddress, hub_listing, parse_dataset_address
from gradmix.errors import UserError
from tests.data.download.dataset_hub import TOKEN, DatasetHub
from tests.data.readers.test_raw_formats import idx
from tests.processes import peak_megabytes

PETS = "hf://datasets/me/pets"


FILES = {
    "data/train-images-idx3-ubyte.gz": gzip.compress(
        idx(np.random.default_rng(0).integers(0, 256, (50, 28, 28), np.uint8)), 0
    ),
    "data/train-labels-idx1-ubyte.gz": gzip.compress(idx(np.arange(50, dtype=np.uint8) % 10)),
    "README.md": b"# Pets\n",
    "pets.py": b"raise SystemExit('executed')",
    ".gitattributes": b"*.gz filter=lfs",
}
IMAGES = "data/train-images-idx3-ubyte.gz"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DatasetHub]:
    monkeypatch.setattr(hub_listing, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with DatasetHub({"me/pets": dict(FILES)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


@pytest.mark.parametrize("page", [1000, 2])
def test_files_as_they_are_and_no_scripts(hub: DatasetHub, tmp_path: Path, page: int) -> None:
    hub.page = page
    folder = get_data(PETS, data_root=tmp_path / "root")
    assert folder == tmp_path / "root" / "pets"
    got = files_in(folder)
    record = json.loads(got.pop(".source.json"))
    assert got == {name: FILES[name] for name in FILES if not name.startswith((".", "pets.py"))}
    assert (record["repo"], record["commit"]) == ("me/pets", hub.commit)
    assert record["files"][IMAGES].startswith("sha256:")
    assert record["files"]["README.md"].startswith("git-sha1:")
    assert names_in(tmp_path / "root") <= {"pets", ".pets.lock"}
    assert len(load_images(folder / "data")) == 50
    # It is there now: nothing is asked for again.
    asked = len(hub.requests)
    assert get_data(PETS, data_root=tmp_path / "root") == folder
    assert len(hub.requests) == asked


def test_a_known_name(hub: DatasetHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png, parquet = io.BytesIO(), io.BytesIO()
    Image.new("L", (28, 28), 7).save(png, "PNG")
    pq.write_table(pa.table({"image": [{"bytes": png.getvalue()}] * 2, "label": [7, 3]}), parquet)
    hub.repos["ylecun/mnist"] = {
        "mnist/train-00000-of-00001.parquet": parquet.getvalue(),
        "other/huge.bin": b"x" * 10_000,
    }
    root = tmp_path / "root"
    assert main(["data", "get", "MNIST", "--data-root", str(root)]) == 0
    assert capsys.readouterr().out == f"{root / 'mnist'}\n"
    assert load_images("mnist", data_root=root).labels.tolist() == [7, 3]
    assert not (root / "mnist" / "other").exists()
    asked = len(hub.requests)
    assert main(["data", "get", "mnist", "--data-root", str(root)]) == 0
    assert len(hub.requests) == asked


def test_a_set_without_images_is_kept_and_said(hub: DatasetHub, tmp_path: Path) -> None:
    hub.repos["me/texts"] = {"train.jsonl": b"{}\n"}
    with pytest.warns(UserWarning, match="has no images that can be read here"):
        folder = get_data("hf://datasets/me/texts", tmp_path / "texts")
    assert (folder / "train.jsonl").read_bytes() == b"{}\n"
    hub.repos["me/packed"] = {"train.zip": b"not looked into"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_data("hf://datasets/me/packed", tmp_path / "packed")


def test_out_and_only(hub: DatasetHub, tmp_path: Path) -> None:
    folder = get_data(PETS, tmp_path / "deep" / "here", only="data/*labels*")
    assert set(files_in(folder)) == {"data/train-labels-idx1-ubyte.gz", ".source.json"}
    with pytest.raises(UserError, match=r"has no files that match '\*.parquet' \(it has data/train-images"):
        get_data(PETS, tmp_path / "other", only="*.parquet")
    assert not (tmp_path / "other").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(UserError, match="mine is there already, and is no download; remove it, or give"):
        get_data(PETS, mine)
    hub.repos["me/owls"] = dict(FILES)
    with pytest.raises(UserError, match="is a download of me/pets"):
        get_data("hf://datasets/me/owls", folder)


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


@pytest.mark.parametrize("name", [IMAGES, "README.md"])
def test_a_wrong_checksum_is_refused(hub: DatasetHub, tmp_path: Path, name: str) -> None:
    hub.spoil = {name}
    with pytest.raises(UserError, match=f"{name} of {PETS} came with another checksum than the Hub gives"):
        get_data(PETS, tmp_path / "pets")
    assert not (tmp_path / "pets").exists()
    hidden = files_in(tmp_path / ".pets.get")
    assert not [path for path in hidden if Path(path).name.strip(".").startswith(Path(name).name)]
    hub.spoil = set()
    assert files_in(get_data(PETS, tmp_path / "pets"))[name] == FILES[name]


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


def test_the_token_goes_to_the_hub_alone(
    hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.private = True
    with pytest.raises(UserError, match=r"the Hub does not give you hf://datasets/me/pets; .* hf auth login"):
        get_data(PETS, tmp_path / "pets")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.elsewhere = hub.url.replace("127.0.0.1", "localhost")
    assert files_in(get_data(PETS, tmp_path / "pets"))[IMAGES] == FILES[IMAGES]
    tokens = {request.path.startswith("/cdn/"): request.token for request in hub.requests[1:]}
    assert tokens == {False: f"Bearer {TOKEN}", True: None}


@pytest.mark.parametrize(
    "path", ["../evil.npz", "/evil.npz", "a/../../evil.npz", "C:\\evil.npz", "..\\evil.npz", ""]
)
def test_names_cannot_leave_the_folder(hub: DatasetHub, tmp_path: Path, path: str) -> None:
    hub.repos["me/pets"] = {path: b"x" * 200}
    with pytest.raises(UserError, match="would be written outside its folder"):
        get_data(PETS, tmp_path / "in" / "pets")
    assert not hub.file_requests()
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    "listing",
    [
        {"error": "no"},
        [{"type": "file", "path": 7, "oid": "0" * 40, "size": 1}],
        [{"type": "file", "path": "a", "oid": "0" * 40, "size": -1}],
        [{"type": "file", "path": "a", "oid": "0" * 40, "size": True}],
        [{"type": "file", "path": "a", "oid": "zz", "size": 1}],
        [{"type": "file", "path": "a", "oid": "0" * 40, "size": 1, "lfs": {"oid": None, "size": 1}}],
    ],
)
def test_lists_that_make_no_sense(hub: DatasetHub, tmp_path: Path, listing: object) -> None:
    hub.listing = listing
    with pytest.raises(UserError, match=r"cannot be read|gives no checksum"):
        get_data(PETS, tmp_path / "pets")


def test_a_list_that_goes_on_elsewhere(hub: DatasetHub, tmp_path: Path) -> None:
    hub.page, hub.next_page = 1, "http://localhost:1/api"
    with pytest.raises(UserError, match="goes on at another host; it is refused"):
        get_data(PETS, tmp_path / "pets")


def test_more_than_the_disk_holds(hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    with pytest.raises(UserError, match=r"needs 0.0 GB more, but .* give another --out"):
        get_data(PETS, tmp_path / "pets")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["data", "get", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    return err


def test_mistakes_are_one_line(
    hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "x"))
    assert "the Hub has no hf://datasets/me/nothing, or not for you" in refused(
        capsys, "hf://datasets/me/nothing", *out
    )
    assert "the Hub has no hf://datasets/me/pets@v9" in refused(capsys, f"{PETS}@v9", *out)
    assert "no data set 'mnits' to get (there are: cifar10," in refused(capsys, "mnits", *out)
    assert "no address of dtd on the Hub is known here" in refused(capsys, "dtd", *out)
    assert "give hf://datasets/owner/name" in refused(capsys, "hf://me/pets", *out)
    assert "is no repository of the Hub" in refused(capsys, "hf://datasets/pets", *out)
    hub.status = [503] * hub_listing.TRIES
    assert "the Hub is out of reach (it answers 503" in refused(capsys, PETS, *out)
    hub.status = [503, 200]
    assert "names no commit" in refused(capsys, PETS, *out)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in refused(capsys, PETS, *out)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "the Hub is out of reach (" in refused(capsys, PETS, *out)
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    assert "HF_ENDPOINT is 'file:///etc'" in refused(capsys, PETS, *out)
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / ".x.get").exists()


def test_addresses() -> None:
    assert parse_dataset_address("hf://datasets/a/b") == DatasetAddress("a/b")
    assert parse_dataset_address("hf://datasets/a/b@refs/convert/parquet") == DatasetAddress(
        "a/b", "refs/convert/parquet"
    )
    assert str(DatasetAddress("a/b", "v1")) == "hf://datasets/a/b@v1"
    assert parse_dataset_address("cifar10") is None


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


def test_the_hubs_own_client_gets_the_same_from_this_hub(hub: DatasetHub, tmp_path: Path) -> None:
    """So the Hub of these tests answers as the Hub does."""
    api = pytest.importorskip("huggingface_hub").HfApi(endpoint=hub.url)
    hub.page = 2
    listed = {
        entry.path: (entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
        for entry in api.list_repo_tree("me/pets", repo_type="dataset", recursive=True)
        if hasattr(entry, "size")
    }
    _, ours = hub_listing.list_files(DatasetAddress("me/pets"))
    assert {file.path: (file.size, file.checksum) for file in ours} == listed
    assert api.repo_info("me/pets", repo_type="dataset", revision="main").sha == hub.commit
    path = api.hf_hub_download("me/pets", IMAGES, repo_type="dataset", local_dir=tmp_path / "theirs")
    assert Path(path).read_bytes() == FILES[IMAGES]
