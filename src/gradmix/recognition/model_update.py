"""Change a model on disk: one writer at a time, readers never wait and never see half of a change.

A writer holds a lock on ``.model.safetensors.lock`` beside the model from reading it to replacing it, so that
of two changes made at once neither is lost. The model itself is replaced by one atomic move. A writer that
is killed leaves the old model or the new one; the system releases its lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..hub_file import MODEL_FILE, hub_address
from ..locks import held
from .model_file import Identity, identity, load, load_with_notes, model_path, save
from .recognizer import Recognizer

_SECONDS_A_SAVE_MAY_TAKE = 3600.0


def update_model(path: str | Path, change: Callable[[Recognizer], Recognizer]) -> Recognizer:
    """Replace the model at ``path`` (a file, or the run folder that holds it) by ``change`` of it."""
    return replace_model(path, change)[0]


def replace_model(
    path: str | Path, change: Callable[[Recognizer], Recognizer]
) -> tuple[Recognizer, Identity | None]:
    """The same, and which file it is then: whoever follows the file can tell this change from later ones."""
    if hub_address(path) is not None:
        raise UserError(f"{hub_address(path)} cannot be changed there; change a copy of its {MODEL_FILE}")
    file = model_path(path)
    if not file.is_file():
        load(path)  # says what is wrong, before a lock file is made where no model is
    with _only_writer(file):
        _remove_leftovers(file)
        recognizer, notes = load_with_notes(file)
        changed = change(recognizer)
        save(changed, file, notes)
        return changed, identity(file)


@contextmanager
def _only_writer(file: Path) -> Iterator[None]:
    lock = file.with_name(f".{file.name}.lock")
    try:
        lock.touch()
    except OSError as error:
        raise UserError(f"cannot change {file}: no lock file beside it ({error.strerror})") from error
    with held(lock, f"waiting for the process that changes {file}"):
        yield


def _remove_leftovers(file: Path) -> None:
    """Of writers killed in the middle; a young one may belong to a training that saves without the lock."""
    for part in file.parent.glob(f".{file.name}.*.part"):
        try:
            if time.time() - part.stat().st_mtime > _SECONDS_A_SAVE_MAY_TAKE:
                part.unlink()
        except OSError:
            pass  # its writer was quicker
