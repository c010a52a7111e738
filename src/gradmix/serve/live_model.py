"""The model that is served: read whole, swapped whole, and followed on disk.

Whoever answers a request takes ``current`` once and uses that to the end, so nobody sees half of a change.
Changes go through the file (:func:`gradmix.recognition.update_model`): it is the truth, other processes may
change it too, and a server that is killed has lost nothing.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..errors import UserError
from ..recognition import Recognizer, load
from ..recognition.any_images import Wanted
from ..recognition.model_file import identity, model_path
from ..recognition.model_update import replace_model
from .refusal import Refusal

SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, eq=False)
class Served:
    """One state of the model; ``number`` counts the states that this server has had."""

    recognizer: Recognizer
    number: int

    @cached_property
    def explainer(self) -> Recognizer:
        """The same with a network of its own: explaining hangs hooks into it while others predict."""
        return replace(self.recognizer, network=copy.deepcopy(self.recognizer.network))

    @property
    def wanted(self) -> Wanted:
        """Size and channels of the images that it takes."""
        views = self.recognizer.recipe.views
        return Wanted(views.image_size, views.channels)


class LiveModel:
    """The model at ``path``, a file or the run folder that holds it."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self.file = model_path(path)
        self._changing = threading.Lock()
        self._stamp = identity(self.file)
        self.current = Served(load(self.file), 1)
        self.problem = ""  # why the file on disk is not the model in use
        self._stop = threading.Event()

    def change(self, make: Callable[[Recognizer], Recognizer]) -> Recognizer:
        """Replace the model on disk, then in use, by ``make`` of it."""
        with self._changing:
            try:
                # The path as it was given: the file of one on the Hub is the Hub's, and not changed.
                changed, self._stamp = replace_model(self._path, make)
            except UserError as error:
                raise self._told(error) from error
            self._swap(changed)
            self.problem = ""
        return changed

    def refresh(self) -> bool:
        """Take over what another process wrote; False if there was nothing new, or it cannot be read."""
        with self._changing:
            stamp = identity(self.file)
            if stamp is None or stamp == self._stamp:
                return False
            # The time is from before reading: what is written meanwhile is seen the next time.
            self._stamp = stamp
            try:
                self._swap(load(self.file))
            except (UserError, OSError) as error:
                self.problem = self._without_folder(str(error))
                print(f"gradmix: still serving the model of before: {error}", file=sys.stderr, flush=True)
                return False
            self.problem = ""
            return True

    def follow(self) -> None:
        """Look at the file every second, until :meth:`close`."""

        def look() -> None:
            while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
                self.refresh()

        threading.Thread(target=look, name="follow-model", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def _told(self, error: UserError) -> Exception:
        """What a client hears of it: a disk that cannot be written is no mistake of the client's."""
        reason = self._without_folder(str(error))
        return Refusal(503, reason) if isinstance(error.__cause__, OSError) else UserError(reason)

    def _without_folder(self, text: str) -> str:
        """Where the model lies on this machine is nobody's business elsewhere: its name alone."""
        folder = self.file.parent
        text = text.replace(str(self.file), self.file.name)
        return text.replace(str(folder), folder.name) if len(folder.parts) > 1 else text

    def _swap(self, recognizer: Recognizer) -> None:
        self.current = Served(recognizer, self.current.number + 1)
