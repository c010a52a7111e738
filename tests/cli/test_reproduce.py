"""``gradmix reproduce``: the list, the plan, a run, and mistakes in one line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.experiments import EXPERIMENTS
from gradmix.experiments.declaration import OpenSplit
from gradmix.experiments.engine.run import Runner
from gradmix.experiments.images import GeneratedImages, TrialData
from gradmix.training import Interrupted

QUICK = ["reproduce", "table2", "--preset", "smoke", "--protocol", "mnist", "--method", "ce"]


def test_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name, experiment in EXPERIMENTS.items():
        [line] = [line for line in out.splitlines() if line.split()[0] == name]
        assert experiment.title in line


def test_a_run_prints_a_table_and_writes_four_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert "1 trial to do, 1 training, 4 steps" in err  # before it starts
    assert "[1/1] MNIST, Cross Entropy, trial 0: AUROC" in err
    assert "97.80" in out  # the paper's
    folder = Path("out/table2-smoke")
    assert out.splitlines()[-1] == str(folder / "report.html")
    for name in ("result.json", "result.md", "result.tex", "report.html"):
        assert (folder / name).stat().st_size > 100
    capsys.readouterr()
    assert main([*QUICK, "--out", "out"]) == 0
    assert "nothing to train" in capsys.readouterr().err
    assert main([*QUICK, "--out", "out", "--force"]) == 0
    assert "1 training," in capsys.readouterr().err


def test_dry_run_trains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table2", "--preset", "smoke", "--method", "ce,gradmix", "--trials", "3"]
    assert main([*words, "--dry-run", "--out", "out"]) == 0
    out = capsys.readouterr().out
    assert "36 trials to do, 30 trainings, 120 steps in all" in out
    assert out.count("GradMix") == 5  # CIFAR+50 shares its trainings with CIFAR+10
    assert out.count("0,1,2") == 10
    assert "other than in the paper: encoder: resnet18 → resnet8_16" in out
    assert not Path("out").exists()


def test_dry_run_with_force_counts_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gradmix", *QUICK, "--out", "my out"])
    assert main([*QUICK, "--out", "my out"]) == 0
    result = json.loads(Path("my out/table2-smoke/result.json").read_text())
    assert result["command"].endswith("--out 'my out'")  # can be pasted
    capsys.readouterr()
    assert main([*QUICK, "--out", "my out", "--dry-run"]) == 0
    assert "all done before" in capsys.readouterr().out
    assert main([*QUICK, "--out", "my out", "--dry-run", "--force"]) == 0
    assert "1 trial to do, 1 training, 4 steps" in capsys.readouterr().out
    assert Path("my out/table2-smoke/trials/mnist.ce.0.json").is_file()


def test_dry_run_tells_what_has_no_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_mnist(self: GeneratedImages, data: OpenSplit, *asked: object) -> TrialData:
        if data.protocol != "mnist":
            raise UserError(f"no {data.protocol} data")
        return real(self, data, *asked)  # type: ignore[arg-type]

    real = GeneratedImages.load_trial_data
    monkeypatch.setattr(GeneratedImages, "load_trial_data", only_mnist)
    words = ["reproduce", "table2", "--preset", "smoke", "--protocol", "mnist,svhn", "--method", "ce"]
    assert main([*words, "--dry-run", "--skip-missing"]) == 0
    out = capsys.readouterr().out
    assert "1 trial to do, 1 training, 4 steps" in out
    assert "without data, left out: svhn (no svhn data)" in out


def test_stopped_under_force_it_goes_on_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Runner, *asked: object) -> None:
        raise Interrupted(2, 4)

    monkeypatch.setattr(Runner, "work", stop)
    assert main([*QUICK, "--out", "out", "--force"]) == 130
    assert "give the same command without --force to go on" in capsys.readouterr().err
    assert main([*QUICK, "--out", "out"]) == 130
    assert "give the same command again to go on" in capsys.readouterr().err


def test_the_sheet_of_corruptions_takes_frost_from_the_data_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = Image.new("RGB", (64, 64), (90, 120, 200))
    picture.save("photo.png")
    words = ["data", "corrupt", "photo.png", "--size", "16", "--out", "sheet.png"]
    assert main(words) == 0
    assert capsys.readouterr().out == "sheet.png (frost: generated)\n"
    (tmp_path / "no-data" / "frost").mkdir(parents=True)  # the data folder of these tests
    picture.save(tmp_path / "no-data" / "frost" / "1.png")
    assert main(words) == 0
    assert capsys.readouterr().out == "sheet.png\n"


@pytest.mark.slow
def test_finished_trials_are_taken_from_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", "first"]) == 0
    shutil.rmtree("first/trainings")
    capsys.readouterr()
    assert main([*QUICK, "--out", "second", "--reuse", "first"]) == 0
    said = capsys.readouterr().err
    assert "1 trials taken from first" in said
    assert "all done before; nothing to train" in said
    assert not Path("second/trainings").exists()
    name = "table2-smoke/trials/mnist.ce.0.json"
    assert Path("second", name).read_bytes() == Path("first", name).read_bytes()
    assert main([*QUICK, "--out", "third", "--reuse", "first", "--lr", "0.5"]) == 0  # of another key
    assert "0 trials taken from first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--reuse", "nowhere"], "no results of table2-smoke in nowhere"),
        (["--reuse", "nowhere", "--force"], "--force does again what is done"),
    ],
)
def test_what_cannot_be_reused_is_said(more: list[str], said: str, refused: Callable[..., str]) -> None:
    assert said in refused(*QUICK, *more)


def test_dry_run_estimates_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*QUICK, "--dry-run", "--epochs", "1000", "--max-steps", "500"]
    assert main(words) == 0
    assert "500 steps in all, about" in capsys.readouterr().out


def test_fields_of_the_recipe_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", "out", "--lr", "0.02", "--label-smoothing", "0.1"]) == 0
    [trial] = json.loads(Path("out/table2-smoke/result.json").read_text())["trials"]
    assert (trial["recipe"]["lr"], trial["recipe"]["label_smoothing"]) == (0.02, 0.1)
    assert "lr: 0.001 → 0.02" in Path("out/table2-smoke/result.md").read_text()


def test_two_steps_are_not_taken_for_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", "out", "--max-steps", "2"]) == 0
    assert "stopped after 2 steps: the numbers mean nothing" in capsys.readouterr().out
    result = json.loads(Path("out/table2-smoke-2-steps/result.json").read_text())
    assert result["trials"][0]["steps"] == 2
    assert not Path("out/table2-smoke").exists()


def test_trials_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", "out", "--trials", "1,3"]) == 0
    result = json.loads(Path("out/table2-smoke/result.json").read_text())
    assert [(trial["trial"], trial["seed"]) for trial in result["trials"]] == [(1, 1), (3, 3)]
    assert result["summary"]["ce"]["mnist"]["auroc"]["count"] == 2


def test_no_recipe_field_is_mistaken_for_a_misspelt_option() -> None:
    import difflib

    from gradmix.cli import Parser, reproduce
    from gradmix.cli.recipe_fields import SIMILAR_OPTION
    from gradmix.methods import METHODS
    from gradmix.training import field_names

    parser = Parser()
    reproduce.add_arguments(parser)
    own = parser.option_names()
    for field in {name for method in METHODS for name in field_names(method)} - {"method", "max_steps"}:
        for name in (f"--{field}", f"--{field.replace('_', '-')}"):
            assert not difflib.get_close_matches(name, own, cutoff=SIMILAR_OPTION), name


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "which experiment? gradmix reproduce --list names them"),
        (["tabel2"], "no experiment 'tabel2'; did you mean 'table2'"),
        (["table2", "--preset", "gpu"], "no preset 'gpu'"),
        (["table2", "--method", "gradmx"], "no method 'gradmx'; did you mean 'gradmix'"),
        (["table2", "--method", "mine.py"], "no file mine.py"),
        (["table2", "--protocol", "cifar"], "no protocol 'cifar'"),
        (["table2", "--trials", "many"], "--trials takes how many (3) or which (0,2,4), not 'many'"),
        (["table2", "--trials", "0"], "--trials takes how many"),
        (["table2", "--trials", "9"], "no trial 5 of mnist"),
        (["table2", "--max-steps", "0"], "--max-steps must be at least 1"),
        (["table4", "--family", "nonsense"], "no family of splits 'nonsense'"),
        (
            ["table2", "--batch-sise", "3"],
            "no option or recipe field 'batch_sise'; did you mean 'batch_size'",
        ),
        (["table2", "--batch-size", "1"], "batch_size must be at least 2"),
        (["table2", "--forse"], "no option --forse; did you mean --force"),
    ],
)
def test_mistakes(refused: Callable[..., str], words: list[str], complaint: str) -> None:
    assert complaint in refused("reproduce", *words)


def test_missing_data(refused: Callable[..., str], tmp_path: Path) -> None:
    said = refused("reproduce", "table6", "--preset", "cpu", "--out", "out")
    assert "no mini-imagenet data in" in said
    assert str(tmp_path / "no-data") in said
    assert not Path("out").exists()


def test_another_recipe_in_the_same_place(refused: Callable[..., str]) -> None:
    assert main([*QUICK, "--out", "out"]) == 0
    said = refused(*QUICK, "--out", "out", "--lr", "0.5")
    assert "of another setting; use another --out, or --force" in said
