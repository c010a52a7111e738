"""``gradmix evaluate --weights`` and ``--backbone``: a network that somebody else trained."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gradmix.cli import main
from gradmix.data import KNOWN_SETS, get_split, load_images
from gradmix.models import ENCODERS
from gradmix.views import Normalizer
from tests.cli.conftest import save_shapes

Refused = Callable[..., str]
SPLIT = get_split("cifar10", 0)  # knows 0, 6, 4, 9, 1, 7: a list that is not sorted
pytestmark = pytest.mark.filterwarnings("ignore:no frost pictures")


def evaluate(*words: str | Path) -> int:
    return main(["evaluate", *map(str, words)])


def save_colors(root: Path, each: int, seed: int) -> None:
    """CIFAR10's classes, each of a color of its own, as class folders."""
    rng = np.random.default_rng(seed)
    colors = np.random.default_rng(0).integers(0, 200, (10, 3))
    names = KNOWN_SETS["cifar10"].class_names
    assert names is not None
    for color, name in zip(colors, names, strict=True):
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = color + rng.integers(0, 56, (32, 32, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")


def make_weights(images: Any) -> dict[str, Tensor]:
    """A random VGG32 with the classifier, by least squares, that names all ``images`` right."""
    torch.manual_seed(0)
    encoder = ENCODERS["vgg32"](3, "small").eval()
    with torch.no_grad():
        z = encoder(Normalizer.fit(images.images, "cifar")(images.images[:]))
    wanted = torch.nn.functional.one_hot(images.labels, len(images.class_names)).double()
    head = torch.linalg.lstsq(z.double(), wanted, driver="gelsd").solution.T.float()
    weights = {f"module.{name}": value for name, value in encoder.state_dict().items()}
    return weights | {"module.fc.weight": head, "module.bn10.weight": torch.ones(128)}


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a small CIFAR10 of colors, and w.pth, made for trial 0; not to be written to."""
    root = tmp_path_factory.mktemp("colors")
    save_colors(root / "cifar10" / "train", 3, 1)
    save_colors(root / "cifar10" / "test", 2, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(root / "cache"))
        test = load_images("cifar10", split="test", data_root=root, size=32, channels=3)
    torch.save(make_weights(test.only([int(c) for c in SPLIT.known])), root / "w.pth")
    return root


@pytest.fixture
def words(colors: Path) -> list[str]:
    protocol = ["--protocol", "cifar10", "--trial", "0", "--data-root", str(colors)]
    return ["--weights", str(colors / "w.pth"), "--encoder", "vgg32", *protocol]


def test_weights_on_a_protocol(
    words: list[str], colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(colors.iterdir())
    assert evaluate(*words) == 0
    out, err = capsys.readouterr()
    assert "6 classes in the order of the split's list (--class-order changes it)" in err
    assert "images 32x32 color (--image-size), normalized by cifar (--normalize)" in err
    assert "hint" not in err
    assert "note" not in err
    for text in ("mls", "knn", "openmax", "OSCR (= OpenAUC)", "FPR@95 known", "FPR@95 unknown"):
        assert text in out
    assert sorted(colors.iterdir()) == before  # nothing is written beside the weights
    folder = tmp_path / "evaluations" / "w-cifar10-0"
    assert {file.name for file in folder.iterdir()} == {"evaluation.json", "report.html"}
    found = json.loads((folder / "evaluation.json").read_text())
    assert found["weights"]["sha256"] == hashlib.sha256((colors / "w.pth").read_bytes()).hexdigest()
    assert (found["encoder"], found["split"]) == ("vgg32", SPLIT.hash)
    assert {"gradmix", "torch"} <= found["versions"].keys()
    assert found["normalize"]["name"] == "cifar"
    assert (found["known test images"], found["unknown test images"]) == (12, 8)
    assert found["training images"] == 18
    mls = found["metrics"]["mls"]
    assert mls["closed_set_accuracy"] == 1
    assert "macro_f1" in mls
    assert mls["fpr_at_95_known"] == pytest.approx(1 - mls["tnr_at_tpr95"])


def test_the_other_order_of_the_classes_is_hinted_at(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(*words, "--class-order", "sorted", "--detector", "mls", "--out", "out") == 0
    err = capsys.readouterr().err
    assert "6 classes in sorted order" in err
    assert "would be 100.0 % in the order of the split's list: give --class-order list" in err
    assert json.loads(Path("out/evaluation.json").read_text())["metrics"]["mls"]["closed_set_accuracy"] < 0.5


def test_without_training_images_the_others_are_printed(
    words: list[str], colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    save_colors(root / "cifar10" / "test", 2, 2)
    words[words.index(str(colors))] = str(root)
    assert evaluate(*words, "--out", "out") == 0
    out, err = capsys.readouterr()
    (note,) = [line for line in err.splitlines() if line.startswith("note: ")]
    assert "left out, for they learn from training images, and there are none (cifar10 has no 'train'" in note
    assert ": knn, nno, openmax, klm, " in note
    assert note.endswith(", react, vra, dice")
    assert "mls" in out
    assert "knn" not in out
    found = json.loads(Path("out/evaluation.json").read_text())
    assert "macro_f1" not in found["metrics"]["mls"]
    assert found["threshold"].startswith("none; in the report, where 95 %")
    assert found["training images"].startswith("none: cifar10 has no 'train'")


def test_full_spectrum_and_several_unknown_sets(
    colors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_shapes(tmp_path / "shapes", ("cross", "disc"), 3)
    names = KNOWN_SETS["cifar10"].class_names or ()
    for i in SPLIT.known:
        (tmp_path / "known").mkdir(exist_ok=True)
        (tmp_path / "known" / names[int(i)]).symlink_to(colors / "cifar10" / "test" / names[int(i)])
    Path("names.txt").write_text("".join(f"{names[int(i)]}\n" for i in SPLIT.known))
    words = [
        "--weights",
        colors / "w.pth",
        "--encoder",
        "vgg32",
        "--known",
        "known",
        "--classes",
        "names.txt",
    ]
    sets = ["--unknown", "crosses=shapes/cross", "--unknown", "shapes/disc"]
    assert evaluate(*words, *sets, "--full-spectrum", "--severity", "1") == 0
    out, err = capsys.readouterr()
    assert "6 classes in the order of names.txt" in err
    header, *rows = out.splitlines()
    row = next(row for row in rows if row.split()[0] == "mls")
    assert header.split() == ["AUROC", "crosses", "disc", "mean"]
    found = json.loads((tmp_path / "evaluations" / "w" / "evaluation.json").read_text())
    both = [found["unknown sets"][name]["mls"]["auroc"] for name in ("crosses", "disc")]
    assert found["metrics"]["mls"]["auroc"] == pytest.approx(sum(both) / 2)
    assert row.split() == ["mls", *(f"{100 * v:.2f}" for v in (*both, found["metrics"]["mls"]["auroc"]))]
    assert found["unknown test images"] == {"crosses": 3, "disc": 3}
    assert found["full spectrum"].endswith("at severity 1: all known")
    assert "FPR@95 unknown" in out
    html = (tmp_path / "evaluations" / "w" / "report.html").read_text(encoding="utf-8")
    assert "AUROC, by unknown set" in html


def test_a_run_with_several_unknown_sets(
    run: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = trained / "others" / "cross"
    words = ("--known", trained / "test", "--unknown", f"a={others}", "--unknown", f"b={others}")
    assert evaluate(run, *words) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["AUROC", "a", "b", "mean"]
    assert evaluate(run, *words[:2], "--unknown", others, "--full-spectrum", "--out", "full") == 0
    full, plain = (json.loads(Path(f, "evaluation.json").read_text()) for f in ("full", run))
    assert "unknown sets" not in full
    assert full["full spectrum"].endswith("at severity 3: all known")
    assert full["metrics"]["knn"]["auroc"] != plain["metrics"]["knn"]["auroc"]


def test_a_protocols_known_images_against_other_unknown_ones(
    words: list[str], trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--unknown", f"shapes={trained / 'others'}", "--unknown", "whole=cifar10"]
    assert evaluate(*words, *sets, "--out", "out") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[2].split() == ["AUROC", "shapes", "whole", "mean"]
    assert ["Macro-F1", "shapes", "whole", "mean"] in [line.split() for line in out.splitlines()]
    found = json.loads(Path("out/evaluation.json").read_text())
    assert found["unknown test images"] == {"shapes": 6, "whole": 20}
    assert found["test"].startswith("known of cifar10, trial 0 (arpl_2020) against shapes=")
    assert "openness" not in found


BUILD = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    body = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(8, 3))

def vectors():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 3))
"""


def test_any_module_by_a_function(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    Path("mine.py").write_text(BUILD)
    folders = ["--known", trained / "test", "--unknown", trained / "others", "--image-size", "16"]
    assert evaluate("--backbone", "mine.py:build", *folders, "--train", trained / "photos") == 0
    out, err = capsys.readouterr()
    assert "mine.py:build: 3 classes in the order of the sorted folders (--classes changes it)" in err
    assert "its features go into '4'" in err
    assert "openmax" in out
    found = json.loads((tmp_path / "evaluations" / "mine" / "evaluation.json").read_text())
    assert found["backbone"]["sha256"] == hashlib.sha256(BUILD.encode()).hexdigest()
    assert found["training images"] == 36
    assert evaluate("--backbone", "mine.py:vectors", *folders, "--out", "flat") == 0  # no maps to color
    assert "--train DIR" in capsys.readouterr().err
    torch.save({"0.weight": torch.ones(1)}, "other.pth")
    line = refused("evaluate", "--backbone", "mine.py:build", "--weights", "other.pth", *folders)
    assert "other.pth does not fit the backbone: it lacks '0.bias'" in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--encoder", "resnet18"], "does not fit this encoder: it lacks 'layer1.0.conv1.weight'"),
        (["--protocol", "mnist", "--trial", "9"], "no trial 9 of mnist"),
        (["--protocol", "tinyimagenet"], "has a classifier of 6 classes, and there are 20 known ones"),
        (["--weights", "nowhere.pth"], "weights: no file nowhere.pth"),
        (["--detector", "mlss"], "did you mean 'mls'?"),
        (["--detector", "rotpred"], "'rotpred' needs rotation"),
        (["--normalize", "cifr"], "did you mean 'cifar'?"),
        (["--normalize", "0.5/0.5"], "one mean and one positive deviation per channel, of which there are 3"),
        (["--normalize", "a,b,c/1,1,1"], "means and deviations are numbers"),
        (["--image-size", "0"], "--image-size must be at least 1 pixel, not 0"),
        (["--severity", "2"], "--severity is of the corruptions: give --full-spectrum too"),
        (["--full-spectrum", "--severity", "7"], "severity must be one of 1 to 5, not 7"),
        (["--classes", "names.txt"], "--classes goes with --known and --unknown"),
        (["--known", "a", "--unknown", "b"], "give --protocol, or --known and --unknown, not both"),
        (["--class-order", "random"], "invalid choice: 'random'"),
        (["--backbone", "mine.py:build"], "--encoder and --backbone both name the architecture"),
    ],
)
def test_mistakes(more: list[str], message: str, words: list[str], refused: Refused) -> None:
    assert message in refused("evaluate", *words, *more)
    assert not Path("evaluations").exists()


def test_other_mistakes(words: list[str], run: Path, trained: Path, refused: Refused) -> None:
    assert "what to evaluate?" in refused("evaluate")
    assert "or --weights, not both" in refused("evaluate", run, *words)
    assert "--normalize is about a network that somebody else" in refused(
        "evaluate", run, "--normalize", "cifar"
    )
    weights = words[:2]
    assert "which architecture are these weights of?" in refused("evaluate", *weights, *words[4:])
    assert "on which images? give --protocol" in refused("evaluate", *words[:4])
    folders = ["--known", trained / "test", "--unknown", trained / "others"]
    assert "has a classifier of 6 classes, and there are 3" in refused("evaluate", *words[:4], *folders)
    Path("names.txt").write_text("bar\ndisc\ncube\n")
    line = refused("evaluate", *words[:4], *folders, "--classes", "names.txt")
    assert f"{trained / 'test'} has no folder for the class 'cube' of names.txt" in line
    Path("names.txt").write_text("bar\ndisc\n")
    line = refused("evaluate", *words[:4], *folders, "--classes", "names.txt")
    assert f"{trained / 'test'} has a class 'square' that is not in names.txt" in line
    Path("names.txt").write_text("bar\nbar\n")
    assert "names 'bar' twice" in refused("evaluate", *words[:4], *folders, "--classes", "names.txt")
    twice = ["--known", trained / "test", "--unknown", "a=x", "--unknown", "a=y"]
    Path("mine.py").write_text(BUILD)
    assert "two unknown sets are called 'a'" in refused(
        "evaluate", "--backbone", "mine.py:build", *twice, "--image-size", "16"
    )
    assert not Path("evaluations").exists()


def test_killed_in_the_middle_it_leaves_nothing_half_written(colors: Path, tmp_path: Path) -> None:
    """kill -9 while the network looks at images, and while the report is written."""
    for moment in ("gradmix.recognition.features.Outputs", "gradmix.report.page.write_text"):
        module, _, name = moment.rpartition(".")
        code = (
            f"import os, sys, {module} as there\n"
            "def stop(*more, **named):\n    print('here', flush=True)\n    import time; time.sleep(600)\n"
            f"there.{name} = stop\n"
            "from gradmix.cli import main\nsys.exit(main(sys.argv[1:]))"
        )
        protocol = ["--protocol", "cifar10", "--data-root", str(colors), "--out", "out"]
        words = ["evaluate", "--weights", str(colors / "w.pth"), "--encoder", "vgg32", *protocol]
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while process.stdout.readline().strip() != "here":
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        left = [file.name for file in Path("out").iterdir()] if Path("out").exists() else []
        assert left in ([], ["evaluation.json"])
        for file in left:
            json.loads(Path("out", file).read_text())  # whole
