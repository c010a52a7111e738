"""A run folder holds what was asked, takes back what failed, and belongs to one process at a time."""

from __future__ import annotations

import fcntl
import json
import random
from pathlib import Path

import pytest
import torch

from gradmix.errors import UserError
from gradmix.files import try_lock
from gradmix.training import RunFolder
from tests.training.tiny import tiny_recipe


def test_a_run_folder_holds_what_was_asked(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    run = RunFolder.create(tmp_path / "deep" / "run", recipe, {"command": "x"})
    assert RunFolder.open(run.path).recipe() == recipe
    assert run.facts()["command"] == "x"
    assert {"gradmix", "torch", "python"} <= run.facts()["versions"].keys()
    run.add_facts(steps=3)
    assert json.loads(run.facts_file.read_text())["steps"] == 3
    with pytest.raises(UserError, match="already holds a run; go on with --resume"):
        RunFolder.create(run.path, recipe, {})
    with pytest.raises(UserError, match="holds no run"):
        RunFolder.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the folder"):
        RunFolder.create(tmp_path / "file" / "run", recipe, {})


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_damaged_facts_and_recipes_are_named(content: str, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny_recipe(), {})
    run.facts_file.write_text(content)
    run.recipe_file.write_text(content)
    with pytest.raises(UserError, match=r"run\.json"):
        run.facts()
    with pytest.raises(UserError, match=r"recipe\.yaml"):
        run.recipe()


def test_a_mistake_before_training_takes_the_run_back(tmp_path: Path) -> None:
    def make(name: str) -> RunFolder:
        return RunFolder.create(tmp_path / name, tiny_recipe(), {})

    def fail(run: RunFolder) -> None:
        with run.rollback_on_error():
            raise UserError("wrong layer")

    new = make("new")
    with pytest.raises(UserError, match="wrong layer"):
        fail(new)
    assert not new.path.exists()
    trained = make("trained")
    trained.append_history({"step": 1})
    with pytest.raises(UserError):
        fail(trained)
    assert trained.recipe_file.exists()
    shared = make("shared")
    (shared.path / "notes.txt").write_text("mine")
    with pytest.raises(UserError):
        fail(shared)
    assert [file.name for file in shared.path.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    found = make("empty")
    with pytest.raises(UserError):
        fail(found)
    assert list(found.path.iterdir()) == []  # a folder that was there stays


def test_only_what_this_process_wrote_is_taken_back(tmp_path: Path) -> None:
    """Whoever comes while another trains, or after it, changes nothing."""
    names = ["recipe.yaml", "run.json", "run.lock"]
    theirs, ours = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")

    def fail() -> None:
        with ours.rollback_on_error():
            ours.start(tiny_recipe(), {})

    with theirs.exclusive(), theirs.exclusive():  # the inner one is no other process
        theirs.start(tiny_recipe(), {"by": "them"})
        with pytest.raises(UserError, match="another process is training in"):
            fail()
        with pytest.raises(UserError, match="another process is training in"):
            RunFolder.create(theirs.path, tiny_recipe(), {})
        assert sorted(file.name for file in theirs.path.iterdir()) == names
    with pytest.raises(UserError, match="already holds a run"):
        fail()
    assert sorted(file.name for file in theirs.path.iterdir()) == names
    assert theirs.facts()["by"] == "them"


def test_a_lock_on_a_deleted_file_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking it, its last holder may have removed the file."""
    file, opened = tmp_path / "lock", []
    flock = fcntl.flock

    def flock_late(handle: int, how: int) -> None:
        if how & fcntl.LOCK_EX and not opened:
            opened.append(handle)
            file.unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with try_lock(file) as first, try_lock(file) as second, try_lock(file) as third:
        assert file.exists()
        assert [first, second, third].count(True) == 1
    run = RunFolder(tmp_path / "run")
    opened.clear()
    file = run.lock_file
    with run.exclusive():  # tries again
        assert file.exists()
    assert not run.path.exists()  # nothing was started in it


def test_every_flipped_bit_of_a_state_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """torch.load does not look at the checksums of the archive: most flips came back as another state."""
    run = RunFolder.create(tmp_path / "run", tiny_recipe(), {})
    state = {"step": 3, "method": {"weight": torch.arange(600.0)}}
    run.save_state(state)
    whole, rng, noticed = run.state_file.read_bytes(), random.Random(0), 0
    for _ in range(200):
        damaged, spot = bytearray(whole), rng.randrange(len(whole))
        damaged[spot] ^= 1 << rng.randrange(8)
        run.state_file.write_bytes(damaged)
        try:
            found = run.load_state()
        except UserError:
            noticed += 1
            continue
        assert found is not None
        assert found["step"] == 3
        assert torch.equal(found["method"]["weight"], state["method"]["weight"])
    assert noticed >= 100
