"""The model on disk: one writer at a time, whole at every moment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from gradmix import files
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit, load, save, update_model
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(12), tiny_recipe(max_steps=2, holdout=0.25, false_reject=0.2))


@pytest.fixture
def model(recognizer: Recognizer, tmp_path: Path) -> Path:
    save(recognizer, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


# Run by other processes. Each prints a line when it is ready, so that tests need not guess.
ENROLL = """
import sys
from gradmix.recognition import update_model
from tests.training.tiny import tiny_images
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
for i in range(first, first + count):
    update_model(path, lambda r: r.enroll(f"new{i}", tiny_images(2, ("cross",), seed=i)))
    print(i, flush=True)
"""
READ = """
import sys, time
from pathlib import Path
from gradmix.recognition import load
path, stop, reads = sys.argv[1], Path(sys.argv[2]), 0
print("ready", flush=True)
while not stop.exists() or not reads:
    r = load(path)
    state = r.index.state()
    counts = state["labels"].bincount(minlength=len(r.class_names)).tolist()
    assert int(state["num_classes"]) == len(r.class_names), "half a class"
    assert counts[3:] == [2] * len(r.enrolled_names), counts
    assert len(r.gallery.pictures) == sum(counts)
    assert len(r.threshold.by_class) in (0, len(r.class_names))
    reads += 1
print(reads, flush=True)
"""


def python(code: str, *words: object) -> subprocess.Popen[str]:
    """A process that imports what this one does: in the folder of the tests, and by the same PYTHONPATH."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()[1]
    return started


def test_a_change_replaces_the_file(model: Path) -> None:
    update_model(model.parent, lambda r: r.enroll("cross", tiny_images(2, ("cross",))))
    assert load(model).class_names == (*CLASSES, "cross")
    update_model(model, lambda r: r.forget("cross"))
    assert load(model).class_names == CLASSES


def test_a_change_that_fails_leaves_the_file(model: Path) -> None:
    before = model.read_bytes()
    with pytest.raises(UserError, match="no class 'zebra'"):
        update_model(model, lambda r: r.forget("zebra"))
    assert model.read_bytes() == before
    update_model(model, lambda r: r.enroll("cross", tiny_images(1, ("cross",))))  # the lock is free again


def test_where_no_model_is_no_lock_is_left(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model at"):
        update_model(tmp_path, lambda r: r)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = model.with_name("newer.safetensors")
    shutil.copyfile(model, newer)
    update_model(newer, lambda r: r.enroll("cross", tiny_images(2, ("cross",))))

    read_tensor = files._read_tensor

    def replace_and_read(*where: Any) -> Tensor:
        if newer.exists():
            newer.replace(model)  # between the header and the values
        return read_tensor(*where)

    monkeypatch.setattr(files, "_read_tensor", replace_and_read)
    found = load(model)
    assert found.class_names == (*CLASSES, "cross")
    assert found.index.state()["labels"].bincount()[-1] == 2


HOLD = """
import os, sys
from pathlib import Path

from gradmix.recognition import load
from tests.training.tiny import tiny_images

file = Path(sys.argv[1])
model, images, size = load(file), tiny_images(4, seed=7), file.stat().st_size
print("ready", flush=True)

def state():
    tensors = [*model.network.state_dict().values(), *model.index.state().values()]
    tensors += [*model.gallery.state().values(), model.calibration.features, model.calibration.labels]
    return [tensor.clone() for tensor in tensors], model.predict(images).score.clone()

(before, scores), same = state(), lambda a, b: all(x.equal(y) for x, y in zip(a, b, strict=True))
assert str(file) not in Path("/proc/self/maps").read_text(), "mapped"
with open(file, "r+b") as f:
    f.write(bytes(range(256)) * (size // 256) + bytes(size % 256))
assert same(state()[0], before), "changed"
os.truncate(file, 0)
assert same(state()[0], before), "changed"
assert state()[1].equal(scores)
"""


def test_a_model_in_memory_does_not_depend_on_its_file(model: Path) -> None:
    """As ``cp`` does it: the file is overwritten and cut, not replaced."""
    holder = python(HOLD, model)
    _, err = holder.communicate(timeout=120)
    assert holder.returncode == 0, (holder.returncode, err)


def test_old_leftovers_of_killed_writers_are_removed(model: Path) -> None:
    old, young = (model.with_name(f".{model.name}.{name}.part") for name in ("old", "young"))
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 9999, time.time() - 9999))
    update_model(model, lambda r: r)
    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("init", ["/nowhere/weights.pth", "hf://nobody/nothing", None])
def test_where_weights_came_from_is_not_obeyed(model: Path, init: str | None) -> None:
    """A file from elsewhere must not make this machine open or fetch another; older ones do not say."""
    with safe_open(model, framework="pt") as file:
        about = json.loads(file.metadata()["gradmix"])
        del about["sha256"]  # of this content; a file from elsewhere need have none
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    about["recipe"] = {k: v for k, v in about["recipe"].items() if k != "init"}
    about["recipe"] |= {} if init is None else {"init": init}
    save_file(tensors, model, metadata={"gradmix": json.dumps(about)})
    assert load(model).recipe.get("init") == init  # read, and no more: there is nothing at that address


@pytest.mark.slow
def test_two_at_once_lose_nothing_and_readers_see_whole_classes(model: Path) -> None:
    stop = model.parent / "stop"
    reader = python(READ, model, stop)
    writers = [python(ENROLL, model, first, 5) for first in (0, 100)]
    for writer in writers:
        _, err = writer.communicate(timeout=300)
        assert writer.returncode == 0, err
    stop.touch()
    out, err = reader.communicate(timeout=300)
    assert reader.returncode == 0, err
    assert int(out) >= 1
    names = {f"new{i}" for first in (0, 100) for i in range(first, first + 5)}
    assert set(load(model).enrolled_names) == names


@pytest.mark.slow
def test_killed_at_any_moment_it_is_the_old_model_or_the_new(model: Path) -> None:
    """Twenty kills; what was reported as enrolled is there, whole, and the next enroll works.

    Every other process has enrolled a class before it is killed, however slow the machine.
    """
    rng = random.Random(0)
    done: set[str] = set()
    for kill in range(20):
        with python(ENROLL, model, 1000 * kill, 1000) as writer:
            assert writer.stdout is not None
            out = writer.stdout.readline() if kill % 2 else ""
            time.sleep(rng.uniform(0.0, 0.6))
            writer.send_signal(signal.SIGKILL)
            out += writer.stdout.read()  # communicate() would lose what readline() has buffered
        done |= {f"new{number}" for number in out.split()}
        whole = load(model)
        extra = set(whole.enrolled_names) - done
        assert done <= set(whole.enrolled_names)
        assert len(extra) <= 1  # replaced, and killed before it could say so
        done |= extra
        state = whole.index.state()
        assert state["labels"].bincount()[3:].tolist() == [2] * len(whole.enrolled_names)
    assert len(done) >= 10
    update_model(model, lambda r: r.enroll("last", tiny_images(2, ("cross",))))
    assert done, "no writer got as far as one class: the moments are too early"
