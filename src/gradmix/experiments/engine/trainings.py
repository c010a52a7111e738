"""Trainings: each is done once, however many rows and experiments need it, and can be resumed.

<root>/trainings/<key>/ is a run folder as ``gradmix train`` makes it, with snapshots/<step>.safetensors
beside the model. What is in it depends on the key alone, so every experiment may use a finished one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import save_file

from ...data import ImageSet
from ...detection import KNN, Decision, Detector
from ...detection.settings import DetectionSettings
from ...errors import UserError
from ...files import read_tensors, write_atomically
from ...recognition import Recognizer, build_recognizer, hold_out, load, save
from ...recognition.build import make_own_detector
from ...recognition.calibration import fit_detector
from ...training import Recipe, RunFolder, Trained, train
from ...training.hardware import pick_device
from ...training.session import Watch
from ..images import take_per_class


@dataclass(frozen=True)
class Store:
    """The folder of trainings; ``index_per_class`` bounds the images that k-NN compares with (None: all)."""

    root: Path
    snapshots: int = 0
    index_per_class: int | None = None

    def folder(self, key: str) -> RunFolder:
        return RunFolder(self.root / "trainings" / key)

    def lock(self, key: str) -> Path:
        """Return the lock file that a process holds while it works on a training."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / key

    def is_done(self, key: str) -> bool:
        return self.folder(key).model_file.is_file()

    def forget(self, key: str) -> None:
        """Remove a training, finished or not."""
        shutil.rmtree(self.folder(key).path, ignore_errors=True)

    def obtain(self, key: str, recipe: Recipe, images: ImageSet) -> Recognizer:
        """Return the trained model of ``key``: load it, resume its training, or train from the beginning."""
        run = self.folder(key)
        shared = make_shared_recipe(recipe)
        to_train, held_out = hold_out(images, shared)
        content = to_train.content_hash()
        if run.recipe_file.exists():  # whoever calls holds the lock of the training
            if run.facts().get("content_hash") != content:
                raise UserError(
                    f"the training images have changed since {run.path} was trained; use --force to train "
                    "again, or another --out"
                )
            if self.is_done(key):
                found = load(run.path)
                found.network.to(pick_device(recipe.training.device))
                return found
        with run.rollback_on_error():
            if not run.recipe_file.exists():
                run.start(shared, {"key": key, "content_hash": content})
            trained = train(to_train, shared, run, watch=self._keep_snapshots(run))
            index = take_per_class(to_train, self.index_per_class)
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

    def load_snapshots(self, key: str, recognizer: Recognizer) -> Iterator[tuple[int, Trained]]:
        """Yield (step, the network at that step), from the first to the last."""
        for file in sorted((self.folder(key).path / "snapshots").glob("*.safetensors")):
            network = recognizer.spec.build()
            network.load_state_dict(read_tensors(file)[1])
            network.to(next(recognizer.network.parameters()).device).eval()
            yield int(file.stem), Trained(network, recognizer.normalizer, int(file.stem), 0.0)

    def _keep_snapshots(self, run: RunFolder) -> Watch | None:
        """Return what ``train`` calls after every step: it saves the weights at even distances."""
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


def make_shared_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe that a training is stored with: arms that differ in k or score share it."""
    return replace(recipe, detection=DetectionSettings(k=1, holdout=recipe.detection.holdout))


def select_trained_images(images: ImageSet, recipe: Recipe) -> ImageSet:
    """Select the images that ``recipe`` trains on: ``limit_per_class`` of them, without those held out."""
    return hold_out(images, make_shared_recipe(recipe))[0]


def replace_detection(recognizer: Recognizer, recipe: Recipe) -> Recognizer:
    """Return the same model with the detector, k and index of ``recipe``. Its threshold is not adapted."""
    index = recognizer.index.with_settings(**recipe.detection.knn_settings())
    detector: Detector = make_own_detector(recipe)
    if isinstance(detector, KNN):
        detector = index.with_settings(**detector.settings())
    else:
        fit_detector(recognizer, detector)
    decision = Decision(detector, recognizer.threshold)
    return replace(recognizer, index=index, decision=decision, recipe=recipe.flat())
