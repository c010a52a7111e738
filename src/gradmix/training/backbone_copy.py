"""The copy of the user's own network that a run folder keeps, so that the run can resume without the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import write_bytes
from ..models.backbone import BACKBONE, registered_backbone
from ..models.user_backbone import COPY, UserBackbone
from ..models.user_code import split_word

_FACT = "backbone_file"  # of run.json


def keep_backbone(folder: Path, encoder: str) -> dict[str, Any]:
    """Copy the file of the user's network into a run's folder; return what run.json says of it."""
    backbone = registered_backbone() if encoder == BACKBONE else None
    if backbone is None or backbone.code is None:
        return {}
    write_bytes(folder / COPY, backbone.code.code)
    path = str(Path(backbone.code.path).absolute())
    return {_FACT: {"path": path, "layer": backbone.layer, **backbone.code.origin}}


def load_kept_backbone(folder: Path, facts: Mapping[str, Any]) -> tuple[UserBackbone, str] | None:
    """Return the network of the run's own copy, and the layer; None if the run has none."""
    if _FACT not in facts:
        return None
    kept = _record(facts, folder)
    try:
        code = (folder / COPY).read_bytes()
    except OSError as error:
        what = f"{folder / COPY}, the run's copy of its network,"
        raise UserError(f"{what} cannot be read: {error.strerror}") from error
    if hashlib.sha256(code).hexdigest() != kept["sha256"]:
        raise UserError(f"{folder / COPY} is not the code that the run was started with; start a new run")
    # Under its first path: what it imports is beside that one.
    return UserBackbone(code, str(kept["path"]), str(kept["function"])), str(kept["layer"])


def refuse_changed_backbone(folder: Path, facts: Mapping[str, Any], given: str | None) -> None:
    """Raise UserError if the user's file is no longer what the run was started with.

    ``given`` is the file that the command names: the run's own copy, or None.
    """
    if _FACT not in facts:
        if given is not None:
            raise UserError("--resume goes on with what the run was started with; leave --backbone out")
        return
    kept = _record(facts, folder)
    copy = f"{folder / COPY}:{kept['function']}"
    if given is not None:
        if Path(split_word(given)[0]).absolute() != (folder / COPY).absolute():
            raise UserError(
                f"--resume goes on with what the run was started with; give --backbone {copy}, or none"
            )
        return
    file = Path(str(kept["path"]))
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != kept["sha256"]:
        raise UserError(
            f"{file} has changed since {folder} was started; start a new run, or go on with the code as it "
            f"was: --resume --backbone {copy}"
        )


def pack_backbone(found: tuple[UserBackbone, str] | None) -> dict[str, Any] | None:
    """Return the user's network and the layer, as JSON can hold them, for the other processes."""
    if found is None:
        return None
    code, layer = found
    return {"code": code.code.decode("latin-1"), "origin": [code.path, code.function], "layer": layer}


def unpack_backbone(packed: Mapping[str, Any]) -> tuple[UserBackbone, str]:
    """Return what :func:`pack_backbone` packed."""
    return UserBackbone(packed["code"].encode("latin-1"), *packed["origin"]), str(packed["layer"])


def _record(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    record = facts.get(_FACT)
    if not isinstance(record, dict) or not {"path", "function", "layer", "sha256"} <= record.keys():
        raise UserError(f"{folder / 'run.json'} is damaged: it does not say which network is trained")
    return record
