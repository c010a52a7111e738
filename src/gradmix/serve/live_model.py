"""The model that is served, and what it says about a batch of images.

It is replaced as a whole after a change, and reloaded when its file changes.

Code that answers a request reads ``current`` once and uses it to the end, so that no answer mixes two states.
Changes are written to the file first: other processes may change it too, and a server that is killed loses
nothing.
"""

from __future__ import annotations

import copy
import math
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageFormat, ImageSet
from ..detection import KNN, Decision, Predictions, Scores, add_bias
from ..errors import UserError, first_line
from ..recognition import Recognizer, history, load
from ..recognition.model_file import Identity, identity, model_path, replace_model, undo_change
from ..recognition.model_format import GivenModule
from .http import HTTPError

POLL_SECONDS = 1.0
_RARELY = 64  # calls between two tries to load a file that could not be loaded many times
TOP_CLASSES = 3  # listed per image


@dataclass(frozen=True, eq=False)
class Served:
    """One state of the model; ``number`` counts the states that this server has had."""

    recognizer: Recognizer
    number: int

    @cached_property
    def explainer(self) -> Recognizer:
        """Return the same with a copy of the network: explaining adds hooks to it while others predict."""
        return replace(self.recognizer, network=copy.deepcopy(self.recognizer.network))

    @property
    def wanted(self) -> ImageFormat:
        """Return size and channels of the images that it takes."""
        return self.recognizer.image_format


class LiveModel:
    """The model at ``path``, a file or the run folder that holds it.

    ``detector``: decide by another score than the model's own; the file is not changed. ``backbone``: the
    user's own network, if it was made with one.
    """

    def __init__(
        self, path: str | Path, detector: str = "", backbone: GivenModule | str | None = None
    ) -> None:
        self._path = path
        self._detector = detector
        self._backbone = backbone
        self.file = model_path(path)
        self._changing = threading.Lock()
        self._loaded = self._tried = identity(self.file)
        self.current = Served(self._check(load(self.file, backbone)), 1)
        self.problem = ""  # why the file on disk is not the model that is served
        self._tries = 0  # without success
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def change(self, make: Callable[[Recognizer], Recognizer]) -> Recognizer:
        """Replace the model on disk, then in memory, by what ``make`` returns for it."""
        with self._changing:
            try:
                # The path as given: a model on the Hub must not be changed in the Hub's cache.
                changed, stamp = replace_model(
                    self._path, lambda known: self._prepare(make(known)), self._backbone, keep_old=True
                )
            except UserError as error:
                raise self._client_error(error) from error
            self._swap(self._check(changed), stamp)
        return changed

    def undo(self) -> Recognizer:
        """Bring back the model of before the last change, on disk, then in memory."""
        with self._changing:
            try:
                former, stamp = undo_change(self._path, self._backbone)
            except UserError as error:
                raise self._client_error(error) from error
            self._swap(self._check(former), stamp)
        return former

    @property
    def can_undo(self) -> bool:
        """Return whether the last change was made here and can be undone."""
        return history.can_undo(self.file)

    def refresh(self) -> bool:
        """Load what another process wrote; return False if nothing is new, or it cannot be used.

        A file that cannot be used is tried again, first at every call and then ever more rarely, for what
        was wrong (a permission, a disk) may be mended without a change of the file.
        """
        with self._changing:
            stamp = identity(self.file)
            if stamp is None:
                self._note_problem(f"{self.file} is gone")
                return False
            if stamp == self._loaded:
                self.problem = ""
                return False
            if stamp == self._tried:
                self._tries += 1
                if self._tries & (self._tries - 1) and self._tries % _RARELY:
                    return False
            else:
                self._tries = 0
            # Taken before reading, so that what is written meanwhile is seen the next time.
            self._tried = stamp
            try:
                found = self._check(load(self.file, self._backbone))
            except (UserError, OSError) as error:
                self._note_problem(str(error))
                return False
            except Exception as error:  # whatever is in the file, this thread goes on
                self._note_problem(
                    f"{self.file} cannot be used ({type(error).__name__}: {first_line(error)})"
                )
                return False
            self._swap(found, stamp)
            return True

    def follow(self) -> None:
        """Check the file every second, until :meth:`close`."""

        def poll() -> None:
            while not self._stop.wait(POLL_SECONDS):
                # A failure to report a problem (stderr may be gone) must not end the thread either.
                with suppress(Exception):
                    self.refresh()

        self._thread = threading.Thread(target=poll, name="follow-model", daemon=True)
        self._thread.start()

    @property
    def lost_track(self) -> bool:
        """Return whether the thread that follows the file has ended, though nobody closed this."""
        return self._thread is not None and not self._thread.is_alive() and not self._stop.is_set()

    def _note_problem(self, problem: str) -> None:
        text = self._without_folder(problem)
        if text != self.problem:
            self.problem = text
            print(f"gradmix: still serving the model of before: {problem}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._stop.set()

    def _client_error(self, error: UserError) -> Exception:
        """Return the error for the client: 503 if the disk cannot be written, else the client's mistake."""
        reason = self._without_folder(str(error))
        return HTTPError(503, reason) if isinstance(error.__cause__, OSError) else UserError(reason)

    def _without_folder(self, text: str) -> str:
        """Strip local folders from responses; the name of the file stays."""
        folder = self.file.parent
        text = text.replace(str(self.file), self.file.name)
        return text.replace(str(folder), folder.name) if len(folder.parts) > 1 else text

    def _swap(self, recognizer: Recognizer, stamp: Identity | None) -> None:
        self.current = Served(recognizer, self.current.number + 1)
        self._loaded = self._tried = stamp
        self.problem, self._tries = "", 0

    def _check(self, recognizer: Recognizer) -> Recognizer:
        """Return the model with this server's detector, after it has answered for a blank image."""
        known = recognizer.with_detector(self._detector) if self._detector else recognizer
        wanted = known.image_format
        predict_batch(known, torch.zeros((1, wanted.channels, wanted.size, wanted.size), dtype=torch.uint8))
        return known

    def _prepare(self, recognizer: Recognizer) -> Recognizer:
        """Return the model to be written, or raise if this server could not use it."""
        self._check(recognizer)
        return recognizer


@dataclass(frozen=True, eq=False)
class BatchPredictions:
    """Predictions for N images, which several requests share, and the T best classes per image (N, T).

    ``top_similarity`` is the mean cosine to the k nearest images of a class, d_c / k, whichever detector
    decides; the bias of enrolled classes affects the order but is not included. ``model`` is the number of
    the model's state, and ``decision`` how it decides.
    """

    found: Predictions
    top_label: Tensor
    top_similarity: Tensor
    model: int = 0
    decision: Decision | None = None

    def part(self, first: int, stop: int) -> BatchPredictions:
        """Return those of the images first … stop − 1."""
        top = self.top_label[first:stop], self.top_similarity[first:stop]
        return BatchPredictions(self.found.part(first, stop), *top, self.model, self.decision)

    def at_rate(self, false_reject: float) -> BatchPredictions:
        """Return the answers of the same state of the model at another rate of false rejects."""
        assert self.decision is not None
        decision = self.decision.at_rate(false_reject)
        found = decision.decide_scores(Scores(self.found.score, self.found.nearest), self.found.class_names)
        return replace(self, found=found, decision=decision)

    @property
    def note(self) -> str:
        """One line if there are too few held-out images to reject anything, else ""."""
        return "" if self.decision is None else self.decision.threshold.describe_limit()

    def count_known(self) -> int:
        """Return how many images were accepted as known."""
        return int(self.found.accepted.sum())

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per image, ready for JSON."""
        names = self.found.class_names
        columns = zip(
            self.found.names(),
            self.found.nearest.tolist(),
            self.found.score.tolist(),
            self.found.threshold.tolist(),
            self.found.p_value.tolist(),
            self.top_label.tolist(),
            self.top_similarity.tolist(),
            strict=True,
        )
        return [
            {
                "label": label,
                "known": score >= threshold,
                "nearest": names[nearest],
                "score": round(score, 6),
                "threshold": round(threshold, 6) if math.isfinite(threshold) else None,
                "p_value": None if math.isnan(p_value) else p_value,
                "classes": [
                    {"name": names[c], "similarity": round(cosine, 4)}
                    for c, cosine in zip(classes, similarities, strict=True)
                    if math.isfinite(cosine)
                ],
            }
            for label, nearest, score, threshold, p_value, classes, similarities in columns
        ]


def predict_batch(recognizer: Recognizer, images: Tensor, model: int = 0) -> BatchPredictions:
    """Return labels and scores of images (N, C, S, S) uint8, equal to those of ``Recognizer.predict``."""
    unlabelled = ImageSet(images, torch.full((len(images),), UNKNOWN), ())
    outputs, decision = recognizer.outputs(unlabelled), recognizer.decision
    similarity = recognizer.index.class_similarity(outputs.features)
    if isinstance(decision.detector, KNN):  # one search serves the score and the nearest classes
        values = add_bias(similarity, decision.class_bias)
        scores = decision.scores_of_classes(similarity)
    else:
        values, scores = decision.class_scores(outputs), decision.scores(outputs)
    found = decision.decide_scores(scores, recognizer.class_names)
    top = values.topk(min(TOP_CLASSES, values.shape[1]), dim=1).indices
    return BatchPredictions(found, top, similarity.gather(1, top) / recognizer.index.k, model, decision)
