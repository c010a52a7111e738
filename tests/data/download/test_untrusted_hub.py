"""What a Hub could do to ``gradmix data get``: wrong bytes, names that leave the folder, odd lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.data.download import get_data
from gradmix.errors import UserError
from tests.data.download.dataset_hub import TOKEN, DatasetHub
from tests.data.download.pets import FILES, IMAGES, PETS, files_in


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
