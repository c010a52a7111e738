"""benchmarks/collect_results.py: one page, without pictures of data or paths of a machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "collect_results.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("collect_results", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_result(out: Path, name: str, *figures: str, svg: str = "<svg/>") -> None:
    folder = out / f"{name}-cpu"
    (folder / "figures").mkdir(parents=True)
    command = f"`gradmix reproduce {name} --out '/my place' --jobs 2 --trials 3 --data-root=/d`"
    (folder / "result.md").write_text(f"# A table\n\n{command}\n\n- A fact.\n\n## CIFAR10\n")
    for figure in figures:
        (folder / "figures" / f"{figure}.svg").write_text(svg)


def test_figures_are_those_of_the_experiment(script: ModuleType, tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    steps = "cifar10-auroc-against-steps"
    write_result(
        out, "fig-ssl", "small-encoder-top-1", "small-encoder-top-5", "small-encoder-top-1-against-steps"
    )
    write_result(out, "fig-mixers", "cifar10-auroc", steps)
    write_result(out, "fig-area", "cifar10-activated-area-unknown-images")
    write_result(out, "table5", "cifar10-drop-by-corruption")
    write_result(out, "fig-maps", "cifar10-known-images", steps)
    assert script.main([str(out), "--into", str(docs)]) == 0
    shown = {file.stem for file in (docs / "images" / "reproduced").iterdir()}
    assert shown == {
        "fig-ssl-small-encoder-top-1",
        "fig-ssl-small-encoder-top-1-against-steps",
        "fig-mixers-cifar10-auroc",
        f"fig-mixers-{steps}",
        "fig-area-cifar10-activated-area-unknown-images",
        "table5-cifar10-drop-by-corruption",
        f"fig-maps-{steps}",
    }
    page = (docs / "reproduced.md").read_text()
    assert "## A table (`fig-ssl`)" in page
    assert "`gradmix reproduce fig-ssl --trials 3`" in page
    assert "my place" not in page
    assert all(f"(images/reproduced/{name}.svg)" in page for name in shown)


def test_a_picture_of_data_is_left_out_whatever_its_name(script: ModuleType, tmp_path: Path) -> None:
    write_result(tmp_path, "fig-area", "a-known-images", svg='<image href="data:image/png;base64,x"/>')
    assert script.main([str(tmp_path), "--into", str(tmp_path / "docs")]) == 0
    assert not list((tmp_path / "docs" / "images" / "reproduced").iterdir())


def test_a_wrong_folder_changes_nothing(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(tmp_path / "out", "fig-mixers", "cifar10-auroc")
    docs = tmp_path / "docs"
    script.main([str(tmp_path / "out"), "--into", str(docs)])
    before = {file: file.read_bytes() for file in docs.rglob("*") if file.is_file()}
    for words in ([str(tmp_path / "ouut")], [str(tmp_path / "out"), "--preset", "paper"]):
        assert script.main([*words, "--into", str(docs)]) == 2
    assert "nothing was changed" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in docs.rglob("*") if file.is_file()} == before
    assert len(before) == 2
