"""``--backbone hf:owner/name``: the Hub's real client against a Hub in a local folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.models.tower_files import read_tower
from gradmix.recognition import load
from tests.hub.local_hub import LocalHub
from tests.models.tiny_towers import SIDE, save_tower

COMMITS = ("a" * 40, "b" * 40)
OPTIONS = ("--k", "2", "--holdout", "0.25", "--false-reject", "0.3")


def save_bare(folder: Path) -> str:
    """Write a tower without its weights; return the name of the folder."""
    save_tower("dinov2", folder)
    (folder / "model.safetensors").unlink()
    return folder.name


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    """me/dino with two commits, the first tagged v1; me/words, of another kind; me/config, no weights."""
    with LocalHub(tmp_path / "hub") as hub:
        for commit, kind in zip(COMMITS, ("dinov2", "siglip"), strict=True):
            save_tower(kind, hub.folder / "me" / "dino" / commit)
        hub.set_refs("me/dino", main=COMMITS[1], v1=COMMITS[0], private=False)
        words = hub.folder / "me" / "words" / COMMITS[0]
        words.mkdir(parents=True)
        (words / "config.json").write_text('{"model_type": "bert"}')
        hub.set_refs("me/words", main=COMMITS[0], private=False)
        bare = save_bare(hub.folder / "me" / "config" / COMMITS[0])
        hub.set_refs("me/config", main=bare, private=False)
        yield hub


@pytest.fixture
def client(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the Hub's client of this process talk to that Hub, with a cache folder of its own."""
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    return monkeypatch


def go_offline(client: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    client.setattr(constants, "HF_HUB_OFFLINE", True)


def test_fetched_pinned_and_used_without_the_hub(
    hub: LocalHub, client: pytest.MonkeyPatch, photos: Path, tmp_path: Path
) -> None:
    train = ["train", str(photos), *OPTIONS, "--backbone", "hf:me/dino@v1", "--out"]
    assert main([*train, "run"]) == 0
    files = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert files == {"config.json", "preprocessor_config.json", "model.safetensors"}
    model = load("run")
    about = dict(model.spec.body or {})
    assert (about["source"], about["revision"], about["model_type"]) == ("hf:me/dino", COMMITS[0], "dinov2")
    assert (model.spec.encoder, model.spec.image_size) == ("hf:me/dino", SIDE)
    assert model.normalizer.mean == (0.4, 0.5, 0.6)
    # The newest, of which one commit is fetched whole.
    assert read_tower("hf:me/dino").model_type == "siglip_vision_model"
    assert {path.split("/")[4] for _, path in hub.requests if "/resolve/" in path} == {*COMMITS, "v1", "main"}
    # Without the Hub: a training with what was fetched, and the model without even that.
    go_offline(client)
    assert main([*train, "again"]) == 0
    shutil.rmtree(tmp_path / "hf")
    assert main(["predict", "again", str(photos)]) == 0


def test_mistakes(client: pytest.MonkeyPatch, photos: Path, refused: Callable[..., str]) -> None:
    train = ("train", photos, *OPTIONS, "--out", "run", "--backbone")
    assert "the Hub has no me/nothing" in refused(*train, "hf:me/nothing")
    assert "me/dino has no revision 'v9'" in refused(*train, "hf:me/dino@v9")
    line = "hf:me/words is a model of type 'bert'; those that can be used are dinov2, "
    assert line in refused(*train, "hf:me/words")
    assert " has no model.safetensors" in refused(*train, "hf:me/config")
    go_offline(client)
    assert "is not in the Hub's cache folder, and the Hub is out of reach" in refused(*train, "hf:me/dino")
    assert not Path("run").exists()
