from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmix.data.download import hub_listing
from tests.data.download.dataset_hub import DatasetHub
from tests.data.download.pets import FILES


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DatasetHub]:
    monkeypatch.setattr(hub_listing, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with DatasetHub({"me/pets": dict(FILES)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
