"""Which model ``gradmix evaluate`` measures: a run's, one that was saved from Python, or one on the Hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .given_network import RESULTS

if TYPE_CHECKING:
    from ..models.user_backbone import UserBackbone
    from ..recognition import Recognizer


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """A model, what its run wrote down if a run made it, and the folder that its results belong into."""

    path: Path
    recognizer: Recognizer
    results: Path
    facts: dict[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, float]] = ()

    @property
    def has_run(self) -> bool:
        """Whether a run made it, whose images are known."""
        return bool(self.facts)


def open_model(path: Path, backbone: UserBackbone | None = None) -> EvaluatedModel:
    """Open a run's folder, a folder or file saved from Python, or hf://owner/name.

    ``backbone``: the user's own network, if the model was made with one.
    """
    from ..hub_file import parse_hub_address
    from ..recognition import load
    from ..training import RunFolder

    if (path / "recipe.yaml").is_file():
        run = RunFolder.open(path)
        return EvaluatedModel(path, load(path, backbone), path, run.facts(), run.history())
    recognizer = load(path, backbone)
    if path.exists():
        return EvaluatedModel(path, recognizer, path if path.is_dir() else path.parent)
    address = parse_hub_address(path)
    name = path.name if address is None else address.repo.rpartition("/")[2]
    return EvaluatedModel(path, recognizer, Path(RESULTS) / name)
