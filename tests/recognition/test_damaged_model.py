"""A model file that was damaged or written wrongly: refused in one line, at once, in little memory."""

from __future__ import annotations

import json
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gradmix.errors import UserError
from gradmix.files import read_tensors
from gradmix.recognition import Recognizer, fit, load, save, update_model
from tests.training.tiny import tiny_images, tiny_recipe

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(12), tiny_recipe(max_steps=2, holdout=0.25, false_reject=0.2))


@pytest.fixture
def model(recognizer: Recognizer, tmp_path: Path) -> Path:
    save(recognizer, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(model: Path, change: Change, tensors: dict[str, torch.Tensor] | None = None) -> None:
    """Write the model as another program might: without a checksum."""
    header, found = read_tensors(model)
    about = json.loads(header["gradmix"])
    del about["sha256"]
    change(about)
    save_file(found if tensors is None else tensors, model, metadata={"gradmix": json.dumps(about)})


def test_a_file_without_a_checksum_opens(model: Path) -> None:
    """Those of earlier versions have none."""
    rewrite(model, lambda about: None)
    assert load(model).class_names == ("bar", "disc", "square")


def test_every_flipped_bit_is_noticed_or_changes_nothing(model: Path, recognizer: Recognizer) -> None:
    whole, rng = model.read_bytes(), random.Random(0)
    begin = 8 + int.from_bytes(whole[:8], "little")
    spots = [rng.randrange(begin) for _ in range(60)] + [rng.randrange(begin, len(whole)) for _ in range(40)]
    same, state = 0, recognizer.network.state_dict()
    for spot in spots:
        damaged = bytearray(whole)
        damaged[spot] ^= 1 << rng.randrange(8)
        model.write_bytes(damaged)
        try:
            found = load(model)
        except UserError:
            continue
        same += 1
        assert found.class_names == recognizer.class_names
        assert found.threshold == recognizer.threshold
        assert all(torch.equal(value, state[name]) for name, value in found.network.state_dict().items())
    assert same <= 5  # blanks at the end of the header, and the name of the checksum itself


def _set(*path: str | int, to: Any) -> Change:
    def change(about: dict[str, Any]) -> None:
        inner: Any = about
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


ODD: dict[str, tuple[Change, str]] = {
    "huge threshold": (_set("decision", "threshold", "value", to=10**400), "value is out of all bounds"),
    "threshold in words": (
        _set("decision", "threshold", "value", to="high"),
        "its threshold is not a number",
    ),
    "NaN threshold": (_set("decision", "threshold", "value", to=float("nan")), "value is not a number"),
    "rate of 2": (_set("decision", "threshold", "false_reject", to=2.0), "between 0 and 1, not 2.0"),
    "counted -1": (_set("decision", "threshold", "n", to=-1), "impossible number of images"),
    "promised 7": (_set("decision", "threshold", "guaranteed", to=7), "whether it is promised"),
    "short by_class": (_set("decision", "threshold", "by_class", to=[[0.5, 3, True]]), "of 1 classes for 3"),
    "short bias": (_set("decision", "class_bias", to=[0.0, 0.0]), "2 class biases but 3"),
    "NaN bias": (_set("decision", "class_bias", to=[0.0, float("nan"), 0.0]), "class_bias is not a number"),
    "infinite bias": (_set("decision", "class_bias", to=[0.0, 1e999, 0.0]), "class_bias is not a number"),
    "large bias": (_set("decision", "class_bias", to=[0.0, 99.0, 0.0]), "larger than any similarity"),
    "one mean": (_set("normalizer", "mean", to=[0.5]), "1 means and 3 deviations for 3 channels"),
    "no deviation": (_set("normalizer", "std", 0, to=0.0), "cannot be those of pixels"),
    "far mean": (_set("normalizer", "mean", 0, to=1e9), "cannot be those of pixels"),
    "two of a name": (_set("class_names", 1, to="bar"), "two classes are called 'bar'"),
    "unknown": (_set("class_names", 1, to="Unknown"), "no class can be called 'Unknown'"),
    "look-alike": (_set("class_names", 1, to="bаr"), "look the same"),
    "bell": (_set("class_names", 1, to="a\x07"), "can be printed"),
    "number as name": (_set("class_names", 1, to=7), "class_names are no list of names"),
    "enrolled from nowhere": (_set("enrolled", to=["cross"]), "enrolled classes are not among"),
    "huge images": (_set("network", "image_size", to=10**9), "its image_size cannot be 1000000000"),
    "no channels": (_set("network", "channels", to=0), "its channels cannot be 0"),
    "unit 3": (_set("network", "unit_features", to=3), "neither true nor false"),
    "huge feature": (_set("network", "feature_dim", to=2_000_000_000), "'projection.weight' is"),
}


@pytest.mark.parametrize("case", ODD)
def test_headers_that_would_load_and_mislead(case: str, model: Path) -> None:
    change, message = ODD[case]
    rewrite(model, change)
    with pytest.raises(UserError, match=message) as refusal:
        load(model)
    assert str(refusal.value).startswith(str(model))
    assert "\n" not in str(refusal.value)


def test_weights_that_are_not_numbers(model: Path) -> None:
    tensors = read_tensors(model)[1]
    name = next(name for name in tensors if name.startswith("network.") and tensors[name].dim() == 4)
    tensors[name][0, 0, 0, 0] = float("inf")
    rewrite(model, lambda about: None, tensors)
    with pytest.raises(UserError, match="has values that are not numbers"):
        load(model)


# A header that asks for much: each would take gigabytes or hours, were it built before it is compared.
HUGE = {
    "linear": {"head": {"kind": "linear", "classes": 2_000_000_000, "bias": True}},
    "mlp": {"head": {"kind": "mlp", "classes": 3, "hidden": 2_000_000_000, "spectral": True}},
    "feature_dim": {"feature_dim": 2_000_000_000},
    "experts": {"body": {"kind": "experts", "count": 1_000_000_000}, "projection": "none"},
}
LIMITED = """
import resource, sys
from gradmix.errors import UserError
from gradmix.recognition import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for file in sys.argv[1:]:
    try:
        load(file)
    except UserError as error:
        print(error)
more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert more < 200 * 1024, f"{more} KiB"
"""


def test_a_header_that_asks_for_much_is_refused_in_little_memory(model: Path) -> None:
    whole, files = model.read_bytes(), []
    for name, network in HUGE.items():
        files.append(model.with_name(f"{name}.safetensors"))
        files[-1].write_bytes(whole)
        rewrite(files[-1], lambda about, network=network: about["network"].update(network))
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, files)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == len(HUGE), ended.stdout


def test_no_more_layers_than_there_are_weights_for(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradmix.models import heads

    class Deep(heads.LinearHead):
        def __init__(self, dim: int, classes: int, depth: int) -> None:
            super().__init__(dim, classes)
            self.more = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(depth)))

    monkeypatch.setitem(heads.HEADS, "deep", Deep)
    head = {"kind": "deep", "classes": 3, "depth": 10**9}
    rewrite(model, lambda about: about["network"].update(head=head))
    with pytest.raises(UserError, match="more layers than there are weights for"):
        load(model)
    torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(500))  # nobody else is limited


def test_a_private_model_stays_private(model: Path) -> None:
    model.chmod(0o600)
    update_model(model, lambda r: r.enroll("cross", tiny_images(2, ("cross",))))
    assert stat.S_IMODE(model.stat().st_mode) == 0o600
