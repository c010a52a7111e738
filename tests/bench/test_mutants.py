"""The list of benchmarks/mutants.py does not rot: every line that it breaks is still there, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_broken_is_there_once(mutant: Mutant) -> None:
    mutant.check()
    broken = mutant.source(Path(__file__).parents[2]).read_text(encoding="utf-8")
    compile(broken.replace(mutant.old, mutant.new), mutant.file, "exec")  # a mistake in it would be noticed


def test_no_mutant_is_listed_twice() -> None:
    assert len({(mutant.file, mutant.old) for mutant in MUTANTS}) == len(MUTANTS)


def test_what_is_not_there_once_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "src" / "gradmix").mkdir(parents=True)
    (tmp_path / "src" / "gradmix" / "a.py").write_text("x = 1\nx = 1\ny = 2\n")
    Mutant("a.py", "y = 2", "y = 3", ()).check(tmp_path)
    for old, count in (("x = 1", 2), ("z", 0)):
        with pytest.raises(ValueError, match=f"occurs {count} times"):
            Mutant("a.py", old, "", ()).check(tmp_path)
    with pytest.raises(ValueError, match="there is no tests/none"):
        Mutant("a.py", "y = 2", "", ("none.py",)).check(tmp_path)
