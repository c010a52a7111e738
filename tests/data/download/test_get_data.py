"""``gradmix data get`` against a Hub on this machine: what is downloaded, and what is refused."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gradmix.cli import main
from gradmix.data import load_images
from gradmix.data.catalogue import KNOWN_SETS
from gradmix.data.download import DatasetAddress, get_data, hub_listing, parse_dataset_address
from gradmix.errors import UserError
from tests.data.download.dataset_hub import DatasetHub
from tests.data.download.pets import FILES, IMAGES, PETS, files_in, names_in


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


def test_every_known_address_gives_a_set_that_is_then_found_by_its_name(
    hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the files are those of the repositories; their content is two images."""
    png, parquet, arrays = io.BytesIO(), io.BytesIO(), io.BytesIO()
    Image.new("L", (28, 28), 7).save(png, "PNG")
    pq.write_table(pa.table({"image": [{"bytes": png.getvalue()}] * 2, "label": [1, 0]}), parquet)
    np.savez(arrays, train_images=np.zeros((2, 28, 28), np.uint8), train_labels=np.array([[1], [0]]))
    folders = {"ufldl-stanford/svhn": "cropped_digits", "tanganke/kmnist": "kmnist"}
    known = {name: one for name, one in KNOWN_SETS.items() if one.hub_repo}
    for name, one in known.items():
        assert one.hub_repo is not None
        folder = folders.get(one.hub_repo, "data")
        here = hub.repos.setdefault(one.hub_repo, {})
        if one.hub_files.endswith(".npz"):
            here[f"data/{name}.npz"] = arrays.getvalue()
        else:
            here[f"{folder}/train-00000-of-00001.parquet"] = parquet.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in known:
            there = get_data(name, data_root=tmp_path)
            assert len(load_images(name, data_root=tmp_path)) == len(load_images(there)) == 2
            files = [file.name for file in (tmp_path / name).rglob("*") if file.is_file()]
            assert len(files) == 2, files  # and the record; no other set of the repository
            with monkeypatch.context() as offline:
                offline.setenv("HF_HUB_OFFLINE", "1")
                assert get_data(name, data_root=tmp_path) == there


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
    assert "no data set 'mnits' to get (there are: bloodmnist," in refused(capsys, "mnits", *out)
    assert "no address of places365 on the Hub is known here" in refused(capsys, "places365", *out)
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
