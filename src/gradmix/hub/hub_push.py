"""Upload a model to the Hugging Face Hub: its file, its recipe, a card, and nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import __version__
from ..errors import UserError, first_line
from ..hub_file import MODEL_FILE, NEEDS, check_repo, quiet_client
from ..recognition import Recognizer, save
from ..recognition.model_file import load_with_notes, model_path
from ..recognition.model_format import GivenModule
from .model_card import make_model_card

CARD = "README.md"


@dataclass(frozen=True)
class PushResult:
    """The commit, whether an existing card was kept, and a note on numbers left out of a new card."""

    revision: str
    kept_card: bool
    note: str = ""


def push_model(
    model: str | Path,
    repo: str,
    *,
    private: bool = False,
    pictures: bool = False,
    new_card: bool = False,
    backbone: GivenModule | str | None = None,
) -> PushResult:
    """Upload ``model`` (a run folder or a model file) to ``repo`` (owner/name) in one commit.

    ``private``: refused if the repository exists and is public. ``pictures``: include the small pictures and
    file names of the training images. An existing card is kept, because its owner may have written a
    license into it, unless ``new_card``. ``backbone`` as in :func:`gradmix.load`; code is never uploaded.
    """
    check_repo(repo)
    file = model_path(model)
    recognizer, notes = load_with_notes(file, backbone)
    return push_recognizer(
        recognizer, notes, repo, private=private, pictures=pictures, new_card=new_card, file=file
    )


def push_recognizer(
    recognizer: Recognizer,
    notes: Mapping[str, Any],
    repo: str,
    *,
    private: bool = False,
    pictures: bool = False,
    new_card: bool = False,
    file: Path | None = None,
) -> PushResult:
    """Upload a model that is in memory; beside ``file``, where it came from, the card's numbers are found."""
    check_repo(repo)
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise UserError(NEEDS) from None
    if not pictures:
        recognizer = recognizer.without_pictures()
    api = HfApi(library_name="gradmix", library_version=__version__)
    with tempfile.TemporaryDirectory() as folder, _translate_errors(repo), quiet_client():
        save(recognizer, Path(folder, MODEL_FILE), notes)
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise UserError(f"{repo} is there already, and public; make it private first, or drop --private")
        kept_card = not new_card and api.file_exists(repo, CARD)
        content: dict[str, Path | bytes] = {MODEL_FILE: Path(folder, MODEL_FILE)}
        note = ""
        content["recipe.yaml"] = yaml.safe_dump(
            dict(recognizer.recipe), sort_keys=False, allow_unicode=True
        ).encode()
        if not kept_card:
            evaluation, note = (None, "") if file is None else _read_evaluation(file)
            content[CARD] = make_model_card(recognizer, repo, evaluation).encode()
        additions = [CommitOperationAdd(name, what) for name, what in content.items()]
        done = api.create_commit(repo, additions, commit_message=f"Model by gradmix {__version__}")
    return PushResult(str(done.oid), kept_card, note)


def _read_evaluation(file: Path) -> tuple[dict[str, Any] | None, str]:
    """Return what ``gradmix evaluate`` wrote into the run, or None and why it is left out of the card."""
    measured = file.parent / "evaluation.json"
    try:
        found: dict[str, Any] = json.loads(measured.read_text(encoding="utf-8"))
        if not found["metrics"]:
            return None, ""
        if (
            measured.stat().st_mtime_ns < file.stat().st_mtime_ns
        ):  # since then calibrated, enrolled or forgotten
            return None, f"{measured} is older than the model and not in the card; run: gradmix evaluate"
        return found, ""
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


@contextmanager
def _translate_errors(repo: str) -> Iterator[None]:
    """Turn errors of the Hub's client into a UserError of one line that says what to do."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client's own, the network's, the system's
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
            raise UserError(
                f"the Hub does not let you write to {repo}; log in with: hf auth login (or set HF_TOKEN)"
            ) from error
        raise UserError(f"could not push to {repo} ({first_line(error)})") from error
