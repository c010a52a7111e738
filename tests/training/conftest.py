from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.real_runs import finish, start, train_words
from tests.training.tiny import make_photos


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos`` and the undisturbed run ``whole``."""
    folder = tmp_path_factory.mktemp("real_runs")
    make_photos(folder / "photos")
    code, err = finish(start(folder, *train_words("whole")))
    assert code == 0, err
    return folder
