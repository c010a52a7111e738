"""A training that is done once, however many rows and experiments need it, and can be gone on with.

<root>/trainings/<key>/ is a run folder as ``gradmix train`` makes it, with snapshots/<step>.safetensors
beside the model. What is in it depends on the key alone, so whoever finds a finished one may use it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from ..atomic import write_atomically
from ..data import ImageSet
from ..detection import KNN
from ..detection.settings import DetectionSettings
from ..errors import UserError
from ..recognition import Recognizer, build_recognizer, hold_out, load, save
from ..training import Recipe, RunFolder, Trained, train
from ..training.hardware import pick_device
from ..training.session import Watch, build_network
from .images import per_class


@dataclass(frozen=True)
class Store:
    """The folder of trainings; ``index_per_class`` bounds the images that k-NN compares with (None: all)."""

    root: Path
    snapshots: int = 0
    index_per_class: int | None = None

    def folder(self, key: str) -> RunFolder:
        return RunFolder(self.root / "trainings" / key)

    def lock(self, key: str) -> Path:
        """Whoever works on a training holds this."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / key

    def is_done(self, key: str) -> bool:
        return self.folder(key).model_file.is_file()

    def forget(self, key: str) -> None:
        """Remove a training, finished or not."""
        shutil.rmtree(self.folder(key).path, ignore_errors=True)

    def obtain(self, key: str, recipe: Recipe, images: ImageSet) -> Recognizer:
        """The trained model of ``key``: found, gone on with, or trained from the beginning."""
        run = self.folder(key)
        shared = shared_recipe(recipe)
        to_train, held_out = hold_out(images, shared)
        content = to_train.content_hash()
        if run.recipe_file.exists():
            if run.facts().get("content_hash") != content:
                raise UserError(
                    f"the training images have changed since {run.path} was trained; use --force to train "
                    "again, or another --out"
                )
            if self.is_done(key):
                found = load(run.path)
                found.network.to(pick_device(recipe.training.device))
                return found
        new = not run.recipe_file.exists()
        if new:
            run = RunFolder.create(run.path, shared, {"key": key, "content_hash": content})
        with run.taken_back_on_mistakes() if new else nullcontext():
            trained = train(to_train, shared, run, watch=self._keep_snapshots(run))
            index = per_class(to_train, self.index_per_class)
            recognizer = build_recognizer(trained, index, held_out, shared)
        run.add_facts(
            steps=trained.steps,
            minutes=round(trained.minutes, 3),
            core_minutes=round(trained.core_minutes, 3),
            images=len(to_train),
        )
        save(recognizer, run.model_file)  # last: with it, the training is done
        run.state_file.unlink(missing_ok=True)  # only needed to go on
        return recognizer

    def snapshots_of(self, key: str, recognizer: Recognizer) -> Iterator[tuple[int, Trained]]:
        """(step, the network as it was then), from the first to the last."""
        for file in sorted((self.folder(key).path / "snapshots").glob("*.safetensors")):
            network = build_network(recognizer.recipe, len(recognizer.class_names))
            network.load_state_dict(load_file(file))
            network.to(next(recognizer.network.parameters()).device).eval()
            yield int(file.stem), Trained(network, recognizer.normalizer, int(file.stem), 0.0)

    def _keep_snapshots(self, run: RunFolder) -> Watch | None:
        """What ``train`` calls after every step: at even distances, the weights are written down."""
        count = self.snapshots

        def watch(now: Trained, total: int) -> None:
            due = {max(1, round(total * (i + 1) / count)) for i in range(count)}
            if now.steps not in due:
                return
            folder = run.path / "snapshots"
            folder.mkdir(exist_ok=True)
            tensors = {k: v.detach().cpu().contiguous() for k, v in now.network.state_dict().items()}
            write_atomically(folder / f"{now.steps:07d}.safetensors", lambda part: save_file(tensors, part))

        return watch if count else None


def shared_recipe(recipe: Recipe) -> Recipe:
    """The recipe under which a training is kept: arms with another k or score share it."""
    return replace(recipe, detection=DetectionSettings(k=1, holdout=recipe.detection.holdout))


def trained_on(images: ImageSet, recipe: Recipe) -> ImageSet:
    """The images that a training of ``recipe`` sees: ``limit_per_class`` of them, without those held out."""
    return hold_out(images, shared_recipe(recipe))[0]


def with_detection(recognizer: Recognizer, recipe: Recipe) -> Recognizer:
    """The same model with the k, score and index of ``recipe``. Its threshold is no longer meant."""
    settings = recognizer.knn.settings() | {
        "k": recipe.detection.k,
        "normalize": recipe.detection.score_normalize,
        "index": recipe.detection.knn_index,
    }
    return replace(recognizer, knn=KNN.from_state(recognizer.knn.state(), settings), recipe=recipe)
