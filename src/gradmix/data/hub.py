"""Getting a known data set from the Hugging Face Hub, if the extra ``hub`` is installed."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError, first_line
from ..locks import held
from .catalogue import KnownSet


def fetch(known: KnownSet, root: Path) -> Path:
    """Download ``known`` into ``root``; the folder appears under its name only when it is whole."""
    missing = f"no {known.name} data in {root} (looked for {', '.join(known.places)})"
    way_out = "put it there, or say where it is with --data-root or GRADMIX_DATA"
    if known.hub_repo is None:
        raise UserError(f"{missing}; {way_out}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"{missing}; {way_out}, or install gradmix[hub], which downloads {known.hub_repo} from the Hub"
        ) from None
    part, folder = root / f".{known.name}.part", root / known.name
    try:
        root.mkdir(parents=True, exist_ok=True)
        with held(root / f".{known.name}.lock", f"waiting for another download of {known.name}"):
            if not folder.is_dir():
                # In the same place each time, so that an interrupted download goes on where it stopped.
                snapshot_download(
                    known.hub_repo, repo_type="dataset", allow_patterns=[known.hub_files], local_dir=part
                )
                part.rename(folder)
    except Exception as error:  # the Hub's client raises errors of its own, of requests, of the system
        failed = f"{known.hub_repo} could not be downloaded from the Hub ({first_line(error)})"
        raise UserError(f"{missing}, and {failed}; {way_out}") from error
    return folder
