"""The shape of the house: imports point one way, files stay short, the command line starts quickly."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "gradmix"
# May be imported by everyone, and import only each other.
BASE = ("errors", "progress", "files", "machine", "hub_file")
ROOMS = (
    "distributed",
    "data",
    "views",
    "models",
    "attribution",
    "mixing",
    "losses",
    "detection",
    "methods",
    "recipe",  # after methods: METHODS gives each method's own fields; training reads recipes
    "training",
    "recognition",
    "evaluation",
    "bench",
    "report",
    "experiments",
    "batch",
    "export",
    "hub",
    "serve",
    "estimator",
    "demo",
    "cli",
    "__main__",
)
# Inside experiments, in the same order; measures know nothing of the engine that calls them.
EXPERIMENT_ROOMS = ("declaration", "images", "paper", "measures", "engine", "report", "__init__")
LONGEST_FILE = 350
FILES = sorted(PACKAGE.rglob("*.py"))
relative = [str(path.relative_to(PACKAGE)) for path in FILES]


def room_of(path: Path) -> str:
    """``losses/supcon.py`` is in ``losses``, ``estimator.py`` in ``estimator``."""
    return path.with_suffix("").parts[0]


def imported_rooms(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """(line, room) of every import of this package in a file, also those inside functions.

    >>> list(imported_rooms(Path("losses/supcon.py"), "from ..errors import choose"))
    [(1, 'errors')]
    """
    here = ["gradmix", *path.parts[:-1]]  # the package in which a relative import starts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = here[: len(here) - node.level + 1] if node.level else []
            module = start + (node.module.split(".") if node.module else [])
            # `from gradmix import losses` names a room; `from gradmix.losses import supcon` already did.
            targets = [[*module, alias.name] for alias in node.names] if module == ["gradmix"] else [module]
        else:
            continue
        for target in targets:
            if target[0] == "gradmix" and len(target) > 1 and not target[1].startswith("__version"):
                yield node.lineno, target[1]


def violations(path: Path, source: str) -> list[str]:
    """What a file (named relative to the package) imports although it lies further down the house."""
    own = room_of(path)
    if own == "__init__":
        return []  # the package's face may show every room
    order = dict.fromkeys(BASE, 0) | {name: i for i, name in enumerate(ROOMS, start=1)}
    if own not in order:
        return [f"{path}: '{own}' is no room of the house; add it to ROOMS where it belongs"]
    return [
        f"{path}:{line}: {own} may not import {room}"
        for line, room in imported_rooms(path, source)
        if room not in order or order[room] > order[own]
    ]


@pytest.mark.parametrize("name", relative)
def test_imports_point_one_way(name: str) -> None:
    assert violations(Path(name), (PACKAGE / name).read_text(encoding="utf-8")) == []


def test_imports_inside_experiments_point_one_way() -> None:
    order = {name: i for i, name in enumerate(EXPERIMENT_ROOMS)}
    for path in sorted((PACKAGE / "experiments").rglob("*.py")):
        inside = path.relative_to(PACKAGE / "experiments")
        own = order[room_of(inside)]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # An import that climbs exactly to experiments/: ".." from a folder in it, "." from a file.
            if isinstance(node, ast.ImportFrom) and node.level == len(inside.parts) and node.module:
                room = node.module.split(".")[0]
                assert order[room] <= own, f"{inside}:{node.lineno}: may not import {room}"


@pytest.mark.parametrize("name", relative)
def test_files_stay_short(name: str) -> None:
    lines = len((PACKAGE / name).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{name} has {lines} lines; split it by idea"


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("losses/a.py", "from ..errors import choose"),
        ("losses/a.py", "from .nt_xent import nt_xent"),
        ("losses/a.py", "from . import nt_xent"),
        ("losses/a.py", "import torch\nfrom torch import nn"),
        ("losses/sub/a.py", "from ...mixing.boxes import Boxes"),
        ("losses/sub/a.py", "from ..supcon import supcon"),
        ("cli/a.py", "def f():\n    from ..training import loop"),
        ("cli/a.py", "from .. import __version__"),
        ("estimator.py", "from .training import loop"),
        ("files.py", "from .errors import UserError"),
        ("__init__.py", "from .estimator import OpenSetClassifier"),
    ],
)
def test_the_check_accepts(file: str, source: str) -> None:
    assert violations(Path(file), source) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("losses/a.py", "from ..training.loop import fit"),
        ("losses/a.py", "from .. import training"),
        ("losses/a.py", "import gradmix.training.loop"),
        ("losses/a.py", "from gradmix import training"),
        ("losses/a.py", "from gradmix.training import fit"),
        ("losses/a.py", "def f():\n    from ..methods import gradmix"),
        ("losses/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..methods import x"),
        ("losses/sub/a.py", "from ...methods import x"),
        ("losses/a.py", "from gradmix import OpenSetClassifier"),
        ("estimator.py", "from .cli import main"),
        ("errors.py", "from .data import ImageSet"),
        ("helpers/a.py", ""),
    ],
)
def test_the_check_refuses(file: str, source: str) -> None:
    assert len(violations(Path(file), source)) == 1


def test_the_command_line_starts_without_torch() -> None:
    """``gradmix --help`` and a typing error must answer at once; torch alone takes seconds to import."""
    probe = "import sys, gradmix.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
