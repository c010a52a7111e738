"""What the network said is found again, and only for that network and those images."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gradmix.data import ImageSet, cache_root
from gradmix.errors import UserError
from gradmix.models import Network
from gradmix.models.backbone import Backbone
from gradmix.recognition import cached_extract, extract, features
from gradmix.training import make_recipe
from gradmix.training.session import build_network
from gradmix.views import Normalizer

NORMALIZER = Normalizer((0.5,), (0.25,))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRADMIX_CACHE_GB", raising=False)
    monkeypatch.setattr(features, "_SECONDS_WORTH_KEEPING", -1.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images the network had to look at, call by call."""
    calls: list[int] = []

    def counting(network, normalizer, images, **more):
        calls.append(len(images))
        return extract(network, normalizer, images, **more)

    monkeypatch.setattr(features, "extract", counting)
    return calls


def network(method: str = "gradmix", seed: int = 0) -> Network:
    recipe = {"encoder": "resnet8_16", "stem": "half", "image_size": 8, "channels": 1}
    return build_network(make_recipe(recipe | {"method": method, "seed": seed}), 2).eval()


def images(seed: int = 0, n: int = 6) -> ImageSet:
    g = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (n, 1, 8, 8), generator=g).to(torch.uint8)
    return ImageSet(pixels, torch.arange(n) % 2, ("a", "b"))


def entries() -> list[Path]:
    return sorted((cache_root() / "features").iterdir())


@pytest.mark.parametrize("method", ["gradmix", "ce"])  # without and with logits
def test_the_second_time_the_network_rests(method: str, runs: list[int]) -> None:
    net = network(method)
    first = cached_extract(net, NORMALIZER, images())
    second = cached_extract(net, NORMALIZER, images())
    assert runs == [6]
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.labels, second.labels)
    assert (first.logits is None) == (second.logits is None) == (method != "ce")
    if first.logits is not None:
        assert torch.equal(first.logits, second.logits)


def test_everything_the_answer_depends_on_makes_another_entry(runs: list[int]) -> None:
    net = network()
    cached_extract(net, NORMALIZER, images())
    one_pixel = images()
    one_pixel.images[3, 0, 2, 2] ^= 1
    cached_extract(net, NORMALIZER, one_pixel)
    cached_extract(net, Normalizer((0.5,), (0.26,)), images())
    with torch.no_grad():
        next(net.parameters()).view(-1)[0] += 1e-6
    cached_extract(net, NORMALIZER, images())
    next(iter(b for b in net.buffers() if b.is_floating_point())).view(-1)[0] += 1e-6
    cached_extract(net, NORMALIZER, images())
    net.unit_features = not net.unit_features
    cached_extract(net, NORMALIZER, images())
    next(m for m in net.modules() if isinstance(m, torch.nn.Conv2d)).stride = (1, 1)
    cached_extract(net, NORMALIZER, images())
    assert len(runs) == len(entries()) == 7


def test_other_code_is_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net = network()
    before = features.features_key(net, NORMALIZER, images())
    sources = features._code_of(net)
    assert sources is not None
    assert {file.name for file in sources} >= {"network.py", "resnet.py", "normalize.py", "features.py"}
    edited = tmp_path / "resnet.py"
    edited.write_bytes(next(f for f in sources if f.name == "resnet.py").read_bytes() + b"\n# changed\n")
    monkeypatch.setattr(
        features, "_code_of", lambda _: [edited if f.name == "resnet.py" else f for f in sources]
    )
    assert features.features_key(net, NORMALIZER, images()) != before


def test_code_without_a_file_is_not_cached(monkeypatch: pytest.MonkeyPatch, runs: list[int]) -> None:
    """Written in a notebook, it may be another one the next time, with the same name and weights."""

    class OfANotebook(torch.nn.ReLU):
        __module__ = "__main__"

    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    net = network()
    net.encoder.relu = OfANotebook()
    cached_extract(net, NORMALIZER, images())
    cached_extract(net, NORMALIZER, images())
    assert len(runs) == 2
    assert not (cache_root() / "features").exists()


def test_the_layer_of_a_backbone_is_in_the_key() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 4, 3))
    keys = set()
    for layer in ("0", "1"):
        net = Network(Backbone(module, layer, channels=1, image_size=8), 4, 4, "none")
        net.load_state_dict({name: torch.ones_like(value) for name, value in net.state_dict().items()})
        keys.add(features.features_key(net, NORMALIZER, images()))
    assert len(keys) == 2


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def _flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 16
    file.write_bytes(content)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _foreign(file: Path) -> None:
    save_file({"features": torch.zeros(6, 128)}, file)


def _of_another_network(file: Path) -> None:
    cached_extract(network(seed=1), NORMALIZER, images())
    other = next(entry for entry in entries() if entry != file)
    os.replace(other, file)


@pytest.mark.parametrize("damage", [_cut, _flip_a_bit, _empty, _foreign, _of_another_network])
def test_a_wrong_file_is_never_used_and_replaced(damage, runs: list[int]) -> None:
    net = network()
    right = cached_extract(net, NORMALIZER, images())
    file = entries()[0]
    damage(file)
    runs.clear()
    assert torch.equal(cached_extract(net, NORMALIZER, images()).features, right.features)
    assert torch.equal(cached_extract(net, NORMALIZER, images()).features, right.features)
    assert len(runs) == 1


def test_switched_off_or_not_worth_it_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    cached_extract(net, NORMALIZER, images(), use=False)
    cached_extract(net, NORMALIZER, images(n=0))
    with monkeypatch.context() as patch:
        patch.setenv("GRADMIX_CACHE_GB", "0")
        cached_extract(net, NORMALIZER, images())
    monkeypatch.setattr(features, "_SECONDS_WORTH_KEEPING", 60.0)
    cached_extract(net, NORMALIZER, images())
    assert not cache_root().exists()
    monkeypatch.setenv("GRADMIX_CACHE_GB", "lots")
    with pytest.raises(UserError, match="GRADMIX_CACHE_GB must be a number of gigabytes, not 'lots'"):
        cached_extract(net, NORMALIZER, images())


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a file where a folder is needed")
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "file"))
    assert cached_extract(network(), NORMALIZER, images()).features.shape == (6, 128)


def test_the_oldest_go_when_room_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    cached_extract(net, NORMALIZER, images(0))
    size = entries()[0].stat().st_size
    monkeypatch.setenv("GRADMIX_CACHE_GB", str(2.5 * size / 2**30))
    for seed in (1, 2, 3):
        cached_extract(net, NORMALIZER, images(seed))
    assert len(entries()) == 2


FILL = """
import sys, torch
from gradmix.recognition import features
from tests.recognition.test_features import NORMALIZER, images, network
torch.set_num_threads(1)
features._SECONDS_WORTH_KEEPING = -1.0
net = network()
print("ready", flush=True)
for seed in range(int(sys.argv[1]), 100_000):
    features.cached_extract(net, NORMALIZER, images(seed, n=200))
    print(seed, flush=True)
"""


@pytest.mark.slow
def test_killed_while_filling_leaves_whole_files_or_none(runs: list[int]) -> None:
    """Real processes, SIGKILLed at random moments, two of them filling the same cache at once."""
    chance = random.Random(0)
    where = {"cwd": Path(__file__).parents[2], "text": True, "stdout": subprocess.PIPE}
    for start in (0, 0, 10, 20):
        fillers = [subprocess.Popen([sys.executable, "-c", FILL, str(start)], **where) for _ in range(2)]
        for filler in fillers:
            assert filler.stdout is not None
            assert filler.stdout.readline() == "ready\n"
        assert fillers[0].stdout is not None
        assert fillers[0].stdout.readline() == f"{start}\n"  # one entry is there, however slow the machine
        time.sleep(chance.uniform(0.05, 0.6))
        for filler in fillers:
            filler.send_signal(signal.SIGKILL)
            filler.communicate()
    files = [file for file in entries() if file.suffix == ".safetensors"]
    assert files
    for file in files:
        assert load_file(file)["features"].shape == (200, 128)
    net = network()
    for seed in range(30):
        found = cached_extract(net, NORMALIZER, images(seed, n=200))
        torch.testing.assert_close(found.features, extract(net, NORMALIZER, images(seed, n=200)).features)
    assert len(runs) < 30  # some were there, and they were right
