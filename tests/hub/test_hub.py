"""``gradmix push`` and ``hf://owner/name``: the Hub's real client against a Hub in a local folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from gradmix import OpenSetClassifier
from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.hub.hub_push import _read_evaluation, push_model
from gradmix.hub.model_card import make_model_card
from gradmix.hub_file import HubAddress, parse_hub_address
from gradmix.recognition import load
from tests.forked import ForkServer, fork_server
from tests.hub.local_hub import TOKEN, LocalHub
from tests.training.tiny import CLASSES

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    with LocalHub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with fork_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def gradmix(server: ForkServer, hub: LocalHub, tmp_path: Path) -> Run:
    """Run a command with this Hub as the Hub, in a process of its own: the client reads its settings once."""
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}

    def run(
        *words: str | Path, code: str = "", token: str = TOKEN, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = os.environ | settings | {"HF_TOKEN": token} | more
        return server.run(*words, code=code, environment=environment)

    return run


@pytest.mark.slow
def test_given_and_got(
    gradmix: Run, hub: LocalHub, run: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", run, "--known", trained / "test", "--unknown", trained / "others"]
    assert main([str(word) for word in words]) == 0
    done = gradmix("push", run, "me/shapes", "--private")
    assert done.returncode == 0, done.stderr
    refs = hub.refs("me/shapes")
    assert refs is not None
    assert done.stdout == f"hf://me/shapes@{refs['main']}\n"
    assert refs["private"] is True
    # What was uploaded, and nothing else.
    uploaded = hub.folder / "me" / "shapes" / refs["main"]
    assert {file.name for file in uploaded.iterdir()} == {"model.safetensors", "recipe.yaml", "README.md"}
    assert load(uploaded).class_names == CLASSES
    with safe_open(uploaded / "model.safetensors", framework="pt") as model:
        assert not [name for name in model.keys() if name.startswith("gallery.")]  # noqa: SIM118 - no dict
    assert yaml.safe_load((uploaded / "recipe.yaml").read_text()) == dict(load(run).recipe)
    card = (uploaded / "README.md").read_text()
    auroc = json.loads((run / "evaluation.json").read_text())["metrics"]["knn"]["auroc"]
    assert f"| AUROC | {100 * auroc:.1f} |" in card
    assert "bar, disc, square" in card
    assert str(trained) not in card
    assert "On images of the owner's: 12 known and 6 unknown images" in card
    # The same answers from there as from here, by every door.
    image = str(trained / "test" / "disc" / "00.png")
    capsys.readouterr()
    assert main(["predict", str(run), image, "--format", "csv"]) == 0
    here = capsys.readouterr().out
    for address in ("hf://me/shapes", f"hf://me/shapes@{refs['main']}", "hub:me/shapes"):
        done = gradmix("predict", address, image, "--format", "csv")
        assert (done.returncode, done.stdout, done.stderr) == (0, here, "")
    probe = (
        "import sys; from gradmix import OpenSetClassifier\n"
        "print(OpenSetClassifier.load('hf://me/shapes').predict(sys.argv[1])[0])"
    )
    assert gradmix(image, code=probe).stdout.strip() == here.splitlines()[1].split(",")[1]
    probe = "from gradmix.models.pretrained import read_weights; print(len(read_weights('hf://me/shapes')))"
    with safe_open(uploaded / "model.safetensors", "pt") as file:  # as the weights to start from (init)
        assert gradmix(code=probe).stdout.strip() == str(len(file.keys()))
    done = gradmix("predict", "hf://me/shapes", image, "--out", "a.csv")
    assert done.returncode == 0, done.stderr
    # What is in the client's cache needs no Hub.
    asked = len(hub.requests)
    done = gradmix("predict", "hf://me/shapes", image, "--format", "csv", HF_HUB_OFFLINE="1")
    assert (done.stdout, len(hub.requests)) == (here, asked)


@pytest.mark.slow
def test_revisions_cards_and_pictures(gradmix: Run, hub: LocalHub, run: Path, trained: Path) -> None:
    image = trained / "test" / "disc" / "00.png"
    first = gradmix("push", run, "me/shapes", "--with-pictures").stdout.strip()
    commit = first.partition("@")[2]
    hub.set_refs("me/shapes", v1=commit)
    folder = hub.folder / "me" / "shapes" / commit
    assert load(folder).gallery.pictures is not None
    (folder / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    assert main(["forget", str(run), "--name", "disc"]) == 0
    again = gradmix("push", run, "me/shapes")
    assert "the card that was there is kept; --card writes a new one" in again.stderr
    newest = hub.folder / "me" / "shapes" / again.stdout.strip().partition("@")[2]
    assert "license: mit" in (newest / "README.md").read_text()
    assert "disc" not in gradmix("predict", "hf://me/shapes", image).stdout.replace("/disc/", "")
    tagged = gradmix("predict", "hf://me/shapes@v1", image, "--format", "json")
    assert tagged.stdout == gradmix("predict", folder, image, "--format", "json").stdout
    replaced = gradmix("push", run, "me/shapes", "--card").stdout.strip().partition("@")[2]
    assert "# shapes" in (hub.folder / "me" / "shapes" / replaced / "README.md").read_text()


@pytest.mark.slow
def test_mistakes_are_one_line(gradmix: Run, hub: LocalHub, run: Path, trained: Path) -> None:
    def refused(*words: str | Path, **settings: str) -> str:
        done = gradmix(*words, **settings)
        assert done.returncode == 2, done
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    image = trained / "test" / "disc" / "00.png"
    assert "log in with: hf auth login" in refused("push", run, "me/shapes", token="wrong")
    assert hub.refs("me/shapes") is None
    assert "the Hub has no me/nothing, or not for you" in refused("predict", "hf://me/nothing", image)
    assert gradmix("push", run, "me/public").returncode == 0
    commit = (hub.refs("me/public") or {})["main"]
    assert "me/public is there already, and public" in refused("push", run, "me/public", "--private")
    assert "has no revision 'v9'" in refused("predict", "hf://me/public@v9", image)
    (hub.folder / "me" / "public" / commit / "model.safetensors").unlink()
    assert "has no model.safetensors" in refused("predict", "hf://me/public", image)
    for command in (["calibrate"], ["forget", "--name", "disc"], ["enroll", image, "--name", "x"]):
        line = refused(command[0], "hf://me/public", *command[1:])
        assert "hf://me/public cannot be changed there; change a copy" in line
    offline = {"HF_HUB_OFFLINE": "1"}
    assert "the Hub is out of reach" in refused("predict", "hf://me/other", image, **offline)
    assert "could not push to me/shapes (" in refused("push", run, "me/shapes", **offline)


def test_addresses() -> None:
    assert parse_hub_address("hf://a/b") == parse_hub_address(Path("hf://a/b")) == HubAddress("a/b")
    assert parse_hub_address("hub:a/b@1.0") == HubAddress("a/b", "1.0")
    assert str(HubAddress("a/b", "c0ffee")) == "hf://a/b@c0ffee"
    for path in ("runs/hf", "/hf://a/b", Path("model.safetensors"), "hf"):
        assert parse_hub_address(path) is None
    for odd in ("hf://a", "hf://a/b/c", "hf://", "hf://a b/c", "hf:///../x"):
        with pytest.raises(UserError, match="is no repository of the Hub; give owner/name"):
            parse_hub_address(odd)


def test_mistakes_before_the_hub_is_asked(run: Path, refused: Callable[..., str]) -> None:
    assert "'shapes' is no repository of the Hub" in refused("push", run, "shapes")
    assert "no model at nowhere" in refused("push", "nowhere", "me/shapes")


def test_without_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'gradmix\[hub\]'"):
        push_model(run, "me/shapes")
    with pytest.raises(UserError, match=r"pip install 'gradmix\[hub\]'"):
        OpenSetClassifier.load("hf://me/shapes")


def test_a_card_holds_together_whatever_the_classes_are_called(run: Path) -> None:
    odd = replace(load(run), class_names=("a|b", "# *c*", "<script>"))
    card = make_model_card(odd, "me/odd")
    assert r"a\|b, \# \*c\*, \<script\>" in card
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "gradmix"
    assert "license" not in card.split("---")[1]  # it is the owner's to choose
    assert "## Measured" not in card
    many = replace(odd, class_names=tuple(f"class {i}" for i in range(200)))
    assert "class 99 and 100 more" in make_model_card(many, "me/odd")


def test_the_header_tells_the_hub_what_was_measured(run: Path) -> None:
    measured = {
        "metrics": {"knn": {"auroc": 0.912, "dtacc": 0.8}},
        "test": "mnist, trial 0",
        "split": "c0ffee",
    }
    header = yaml.safe_load(make_model_card(load(run), "me/x", measured).split("---")[1])
    assert header["pipeline_tag"] == "image-classification"
    assert header["tags"] == ["open-set-recognition", "image-classification"]
    (index,) = header["model-index"]
    (result,) = index["results"]
    assert (index["name"], result["dataset"]) == ("x", {"type": "mnist", "name": "mnist, trial 0"})
    assert result["metrics"] == [{"type": "roc_auc", "value": 91.2, "name": "AUROC"}]


def test_a_card_names_protocols_and_no_folders(run: Path) -> None:
    measured = {"metrics": {"knn": {"auroc": 0.9}}, "known test images": 5, "unknown test images": 4}
    card = make_model_card(load(run), "me/x", measured | {"test": "acme/photos and acme/others"})
    assert "acme" not in card
    assert "On images of the owner's: 5 known and 4 unknown images, per cent." in card
    of_protocol = measured | {"test": "mnist, trial 0 (arpl_2020)", "split": "c0ffee"}
    assert r"On mnist, trial 0 (arpl\_2020): 5 known" in make_model_card(load(run), "me/x", of_protocol)


def test_numbers_of_a_model_that_has_changed_are_left_out(run: Path) -> None:
    file, measured = run / "model.safetensors", run / "evaluation.json"
    assert _read_evaluation(file) == (None, "")
    found = {"metrics": {"knn": {"auroc": 0.9}}}
    measured.write_text(json.dumps(found))
    assert _read_evaluation(file) == (found, "")
    os.utime(measured, ns=(0, file.stat().st_mtime_ns - 1))
    nothing, note = _read_evaluation(file)
    assert nothing is None
    assert note == f"{measured} is older than the model and not in the card; run: gradmix evaluate"
