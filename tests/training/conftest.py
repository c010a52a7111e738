from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.real_runs import finish, start, train_words
from tests.training.tiny import CLASSES, shape_image


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos`` and the undisturbed run ``whole``."""
    folder = tmp_path_factory.mktemp("real_runs")
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (folder / "photos" / kind).mkdir(parents=True)
        for i in range(8):
            Image.fromarray(shape_image(kind, rng)).save(folder / "photos" / kind / f"{i}.png")
    code, err = finish(start(folder, *train_words("whole")))
    assert code == 0, err
    return folder
