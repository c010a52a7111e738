"""Give a model to the Hugging Face Hub: its file, its recipe, a card, and nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError, first_line
from ..hub_file import MODEL_FILE, NEEDS, checked_repo, quiet_client
from ..recognition import save
from ..recognition.model_file import load_with_notes, model_path
from .model_card import model_card

CARD = "README.md"


@dataclass(frozen=True)
class Pushed:
    """The commit's name, whether a card that was there was left as it is, and what was wrong with the new."""

    revision: str
    kept_card: bool
    note: str = ""


def push_model(
    model: str | Path, repo: str, *, private: bool = False, pictures: bool = False, new_card: bool = False
) -> Pushed:
    """Upload ``model`` (a run folder or a model file) to ``repo`` (owner/name) in one commit.

    ``private``: refused if the repository is there and public. ``pictures``: with the small pictures and
    file names of the training images, which are left out otherwise. A card that is there is kept (its
    owner may have written a licence into it), unless ``new_card``.
    """
    checked_repo(repo)
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise UserError(NEEDS) from None
    file = model_path(model)
    recognizer, notes = load_with_notes(file)
    if not pictures:
        recognizer = recognizer.without_pictures()
    api = HfApi(library_name="gradmix", library_version=__version__)
    with tempfile.TemporaryDirectory() as folder, _in_one_line(repo), quiet_client():
        save(recognizer, Path(folder, MODEL_FILE), notes)
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise UserError(f"{repo} is there already, and public; make it private first, or drop --private")
        kept_card = not new_card and api.file_exists(repo, CARD)
        content: dict[str, Path | bytes] = {MODEL_FILE: Path(folder, MODEL_FILE)}
        note = ""
        content["recipe.yaml"] = recognizer.recipe.to_yaml().encode()
        if not kept_card:
            evaluation, note = _evaluation(file)
            content[CARD] = model_card(recognizer, repo, evaluation).encode()
        additions = [CommitOperationAdd(name, what) for name, what in content.items()]
        done = api.create_commit(repo, additions, commit_message=f"Model by gradmix {__version__}")
    return Pushed(str(done.oid), kept_card, note)


def _evaluation(file: Path) -> tuple[dict[str, Any] | None, str]:
    """What ``gradmix evaluate`` left in the run, if it was measured; or why it is left out of the card."""
    measured = file.parent / "evaluation.json"
    try:
        found: dict[str, Any] = json.loads(measured.read_text(encoding="utf-8"))
        if not found["metrics"]:
            return None, ""
        if measured.stat().st_mtime_ns < file.stat().st_mtime_ns:  # calibrated, or a class more or less
            return None, f"{measured} is older than the model and not in the card; run: gradmix evaluate"
        return found, ""
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


@contextmanager
def _in_one_line(repo: str) -> Iterator[None]:
    """What the Hub's client raises, as one line with the way out."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # errors of its own, of the network, of the system
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
            raise UserError(
                f"the Hub does not let you write to {repo}; log in with: hf auth login (or set HF_TOKEN)"
            ) from error
        raise UserError(f"could not push to {repo} ({first_line(error)})") from error
