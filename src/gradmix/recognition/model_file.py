"""A recognizer as one .safetensors file: tensors, and JSON in its header. Nothing in it is ever executed.

One file, so that replacing it is one atomic move: nobody can see new weights with an old index.

Of several processes that change it each holds a lock on ``.model.safetensors.lock`` beside it from reading to
replacing, so that of two changes made at once neither is lost; readers never wait. A writer that is killed
leaves the old model or the new one; the system releases its lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ..errors import UserError
from ..files import UnsettledFile, checksum, read_tensors, wait_for_lock, write_atomically
from ..hub_file import MODEL_FILE, fetch, parse_hub_address
from ..models.user_backbone import COPY, read_user_backbone
from . import history
from .model_format import FORMAT, GivenModule, pack, unpack
from .recognizer import Recognizer

Identity = tuple[int, int, int]
_SEAL = ', "sha256": "{}"}}'  # the end of the header; what is before it, and the tensors, are sealed
_SEAL_LENGTH = len(_SEAL.format("0" * 64))
_LOCK_SECONDS = 3600.0  # longest wait for another writer


def save(recognizer: Recognizer, path: str | Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write it all to ``path``, atomically; ``notes`` are whatever else JSON can hold."""
    about, tensors = pack(recognizer, notes)

    text = json.dumps(about)
    # In the same text: of several, the library would write one or the other first.
    sealed = text[:-1] + _SEAL.format(checksum(tensors, text))

    def write(part: Path) -> None:
        try:
            save_file(tensors, part, metadata={"gradmix": sealed})
        except SafetensorError as error:  # a full disk is reported as one of these
            raise OSError(None, str(error)) from error

    write_atomically(Path(path), write)


def load(path: str | Path, backbone: GivenModule | str | None = None) -> Recognizer:
    """Load a recognizer from its file, the run folder that holds it, or hf://owner/name on the Hub.

    ``backbone``: a module like the one it was made with, if it was made with one of the user's own, or the
    function that makes it ("mine.py:build"); the weights come from the file.
    """
    recognizer, _ = load_with_notes(path, backbone)
    return recognizer


def load_with_notes(
    path: str | Path, backbone: GivenModule | str | None = None
) -> tuple[Recognizer, dict[str, Any]]:
    """Load a recognizer, and the notes that it was saved with."""
    path = model_path(path)
    backbone = read_user_backbone(backbone) if isinstance(backbone, str) else backbone
    if not path.is_file():
        if (path.parent / "recipe.yaml").exists():
            raise UserError(
                f"the run in {path.parent} is not finished; go on with: gradmix train --resume {path.parent}"
            )
        run = path.parent if path.suffix == ".safetensors" else path
        raise UserError(f"no model at {path}; train one with: gradmix train … --out {run}")
    about, tensors = _read(path)
    try:
        kept = path.parent / COPY
        return unpack(about, tensors, backbone, str(kept) if kept.is_file() else "FILE.py")
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        what = " ".join(str(error).split()[:40])
        raise UserError(f"{path} is not a whole gradmix model: {what}") from error


def model_path(path: str | Path) -> Path:
    """Return the model's file, given itself or the folder that holds it; fetch one on the Hub."""
    here = Path(path)
    if here.exists():
        return here / MODEL_FILE if here.is_dir() else here
    address = parse_hub_address(path)
    return here if address is None else fetch(address)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        header, tensors = read_tensors(path)
    except UnsettledFile as error:
        raise UserError(f"{path} is replaced again and again; try later") from error
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is truncated or not a model file ({error})") from error
    if "gradmix" not in header:
        raise UserError(f"{path} holds tensors, but not a gradmix model; published weights go into --init")
    try:
        about: dict[str, Any] = dict(json.loads(header["gradmix"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a whole gradmix model: its header is damaged") from error
    found = about.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise UserError(
            f"{path} has model format {found}, of a newer gradmix ({about.get('version', 'unknown')}); this "
            f"one reads up to {FORMAT}: pip install --upgrade gradmix"
        )
    if found not in range(1, FORMAT + 1):
        raise UserError(f"{path} has model format {found}; this version of gradmix reads up to {FORMAT}")
    _check_seal(header["gradmix"], tensors, path)
    return about, tensors


def _check_seal(text: str, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise UserError if the header ends in a checksum that is not the one of the content.

    Always, not on request: it is a quarter of the time of opening (90 MB: 0.1 of 0.4 s). Files of earlier
    versions have none.
    """
    plain, seal = text[:-_SEAL_LENGTH] + "}", text[-_SEAL_LENGTH:]
    if not seal.startswith(_SEAL.partition("{")[0]):
        return
    if seal != _SEAL.format(checksum(tensors, plain)):
        raise UserError(f"{path} is damaged: its content is not what was written (SHA-256); copy it again")


def identity(path: Path) -> Identity | None:
    """Return what changes whenever the file is replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def update_model(
    path: str | Path,
    change: Callable[[Recognizer], Recognizer],
    backbone: GivenModule | str | None = None,
) -> Recognizer:
    """Replace the model at ``path`` (a file, or the run folder that holds it) by ``change`` of it.

    ``backbone`` as in :func:`load`.
    """
    return replace_model(path, change, backbone)[0]


def replace_model(
    path: str | Path,
    change: Callable[[Recognizer], Recognizer],
    backbone: GivenModule | str | None = None,
    keep_old: bool = False,
) -> tuple[Recognizer, Identity | None]:
    """Do what :func:`update_model` does; return the new file's identity too, to detect later changes.

    ``keep_old``: so that :func:`undo_change` can take it back.
    """
    if (address := parse_hub_address(path)) is not None:
        raise UserError(f"{address} cannot be changed there; change a copy of its {MODEL_FILE}")
    file = model_path(path)
    if not file.is_file():
        load(path, backbone)  # says what is wrong, before a lock file is made where no model is
    with _lock_model(file):
        _remove_leftovers(file)
        recognizer, notes = load_with_notes(file, backbone)
        changed = change(recognizer)
        kept = history.keep(file) if keep_old else None
        try:
            save(changed, file, notes)
        except BaseException:
            if kept is not None:
                kept.unlink(missing_ok=True)
            raise
        if keep_old:
            history.settle(file)
        return changed, identity(file)


def undo_change(
    path: str | Path, backbone: GivenModule | str | None = None
) -> tuple[Recognizer, Identity | None]:
    """Bring back the model of before the last change that kept it; return what :func:`replace_model` does."""
    file = model_path(path)
    with _lock_model(file):
        history.undo(file)
        return load(file, backbone), identity(file)


@contextmanager
def _lock_model(file: Path) -> Iterator[None]:
    lock = file.with_name(f".{file.name}.lock")
    try:
        lock.touch()
    except OSError as error:
        raise UserError(f"cannot change {file}: no lock file beside it ({error.strerror})") from error
    with wait_for_lock(lock, f"waiting for the process that changes {file}"):
        yield


def _remove_leftovers(file: Path) -> None:
    """Remove files of killed writers; a young one may belong to a training that saves without the lock."""
    for part in file.parent.glob(f".{file.name}.*.part"):
        try:
            if time.time() - part.stat().st_mtime > _LOCK_SECONDS:
                part.unlink()
        except OSError:
            pass  # its writer was quicker
