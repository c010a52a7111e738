from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from gradmix import __version__
from gradmix.cli import COMMANDS, main
from gradmix.cli.recipe_fields import SIMILAR_OPTION, separate_recipe_fields
from gradmix.errors import UserError


def test_help_answers_at_once() -> None:
    """It loads nothing but Python's own modules and gradmix, on whose seconds the machine has no say."""
    probe = (
        "import sys; before = set(sys.modules); from gradmix.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "loaded = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gradmix train photos/" in done.stdout
    assert done.stdout.splitlines()[-1] == "gradmix"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_needs_no_torch(command: str) -> None:
    probe = (
        "import sys; from gradmix.cli import main\n"
        f"try: main(['{command}', '--help'])\n"
        "except SystemExit as end: print('code', end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "code 0 False", done.stderr


def test_no_command_is_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for name in COMMANDS:
        assert name in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"gradmix {__version__}\n"


def test_misspelt_commands_and_options(refused: Callable[..., str]) -> None:
    assert "did you mean 'train'?" in refused("trian", "photos")
    assert "--hlep" in refused("--hlep")
    assert "--out" in refused("train", "photos")  # it is missing
    assert "invalid choice: 'xml'" in refused("predict", "run", "a.png", "--format", "xml")
    assert "did you mean --protocol?" in refused("train", "--protocl", "mnist", "--out", "run")
    assert "did you mean --recipe?" in refused("train", "photos", "--recpie=small", "--out", "run")


def test_no_recipe_field_is_mistaken_for_a_misspelt_option() -> None:
    import difflib

    from gradmix.cli import Parser, train
    from gradmix.methods import METHODS
    from gradmix.training import field_names

    parser = Parser()
    train.add_arguments(parser)
    own = parser.option_names()
    for method in METHODS:
        for field in field_names(method):
            for name in (f"--{field}", f"--{field.replace('_', '-')}"):
                assert not difflib.get_close_matches(name, own, cutoff=SIMILAR_OPTION), name


def test_recipe_fields_are_told_from_options() -> None:
    own = {"--out", "--resume"}
    words = ["photos", "--epochs", "5", "--resume", "--lr=-0.1", "--out", "run", "--flip", "--rotate", "-3"]
    assert separate_recipe_fields(words, own) == (
        ["photos", "--resume", "--out", "run"],
        {"epochs": "5", "lr": "-0.1", "flip": "true", "rotate": "-3"},
    )
    assert separate_recipe_fields(["--batch-size", "8"], own) == ([], {"batch_size": "8"})
    with pytest.raises(UserError, match="did you mean --resume"):
        separate_recipe_fields(["--resum"], own)


def test_ctrl_c_and_closed_pipes_are_no_tracebacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gradmix.cli._dispatch", interrupt)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "interrupted\n"

    def no_space(arguments: list[str]) -> int:
        raise OSError(28, "No space left on device", "runs/a/run.json")

    monkeypatch.setattr("gradmix.cli._dispatch", no_space)
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "gradmix: runs/a/run.json: No space left on device\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m gradmix --help | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
