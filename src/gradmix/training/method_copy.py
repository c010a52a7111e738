"""The copy of the user's own method that a run folder keeps, so that the run can resume without the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import write_bytes
from ..methods.from_file import is_method_file, register_code, source_of

FILE = "method.py"


def keep_method(folder: Path, method: str) -> dict[str, Any]:
    """Copy the file of a method into a run's folder; return what run.json says of it, if it has one."""
    source = source_of(method)
    if source is None:
        return {}
    write_bytes(folder / FILE, source.code)
    path = str(Path(source.path).absolute())
    return {"method_file": {"path": path, "class": source.class_name, "sha256": source.sha256}}


def pack_method(method: str) -> dict[str, Any] | None:
    """Return the code of a method from the user's own file, as JSON can hold it, for the other processes."""
    source = source_of(method)
    if source is None:
        return None
    return {"code": source.code.decode("latin-1"), "origin": [source.path, source.class_name]}


def describe_method(method: str) -> str:
    """Return what recipe.yaml says: the method's name, or the run's own copy and the class in it."""
    source = source_of(method)
    return method if source is None else f"{FILE}:{source.class_name}"


def load_kept_method(folder: Path, values: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return recipe.yaml's values with the name of the method, which is loaded from the copy if need be."""
    word = values.get("method")
    if not is_method_file(word):
        return dict(values)
    kept = _record(facts, folder)
    try:
        code = (folder / FILE).read_bytes()
    except OSError as error:
        what = f"{folder / FILE}, the run's copy of its method,"
        raise UserError(f"{what} cannot be read: {error.strerror}") from error
    if hashlib.sha256(code).hexdigest() != kept["sha256"]:
        raise UserError(f"{folder / FILE} is not the code that the run was started with; start a new run")
    return {**values, "method": register_code(code, str(kept["path"]), str(kept["class"]))}


def refuse_changed_method(folder: Path, facts: Mapping[str, Any], given: str | None) -> None:
    """Raise UserError if the user's file is no longer what the run was started with.

    ``given`` is the file that the command names: the run's own copy, or None.
    """
    if given is not None:
        if "method_file" not in facts:
            raise UserError(
                "--resume goes on with what the run was started with; give only its folder (and --data-root)"
            )
        path = given.rpartition(":")[0] if not given.endswith(".py") else given
        if not (folder / FILE).is_file() or Path(path).absolute() != (folder / FILE).absolute():
            raise UserError(
                f"--resume goes on with what the run was started with; give --method {folder / FILE}, or none"
            )
        return
    if "method_file" not in facts:
        return
    kept = _record(facts, folder)
    file = Path(str(kept["path"]))
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != kept["sha256"]:
        raise UserError(
            f"{file} has changed since {folder} was started; start a new run, or go on with the code as it "
            f"was: --resume --method {folder / FILE}"
        )


def _record(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    record = facts.get("method_file")
    if not isinstance(record, dict) or not {"path", "class", "sha256"} <= record.keys():
        raise UserError(f"{folder / 'run.json'} is damaged: it does not say which method is trained")
    return record
