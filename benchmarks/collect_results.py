"""docs/reproduced.md: what `gradmix reproduce` has printed, all experiments on one page.

python benchmarks/collect_results.py reproduce/ --preset cpu --into docs/

Tables and sentences are those of each result.md, figures those of its figures/. Pictures of data sets
(fig-maps) are left out: they are not ours to publish. So are the options of a command that say where and how
it ran, not what.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gradmix.data import data_root
from gradmix.experiments import EXPERIMENTS, Experiment
from gradmix.report.figure_files import slug

HEAD = """# The paper's experiments on two CPU cores
Written by `python benchmarks/collect_results.py` from what `gradmix reproduce EXPERIMENT` printed.
What it means is in [results.md](results.md), how it is made in [reproduce.md](reproduce.md).
"""
# How the names of figures end, by what experiments call them; those of fig-maps are not among them.
ENDINGS = {"corruptions": "drop-by-corruption", "area": "known-images"}
OF_THE_MACHINE = ("--out", "--jobs", "--data-root")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the folder of gradmix reproduce")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--into", type=Path, default=Path("docs"))
    args = parser.parse_args(words)
    folders = {name: args.out / f"{name}-{args.preset}" for name in EXPERIMENTS}
    there = {name: folder for name, folder in folders.items() if (folder / "result.md").is_file()}
    if not there:  # before the pictures of the last time are gone
        print(f"no results of preset {args.preset} in {args.out}; nothing was changed", file=sys.stderr)
        return 2
    pictures = args.into / "images" / "reproduced"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    parts = [HEAD]
    for name, folder in there.items():
        parts.append(section(name, (folder / "result.md").read_text(encoding="utf-8")))
        for file in sorted((folder / "figures").glob("*.svg")):
            if is_shown(EXPERIMENTS[name], file):
                shutil.copyfile(file, pictures / f"{name}-{file.name}")
                alt = file.stem.replace("-", " ")
                parts.append(f"![{alt}](images/reproduced/{name}-{file.name})")
    (args.into / "reproduced.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(args.into / "reproduced.md")
    return 0


def section(name: str, text: str) -> str:
    """A result.md one level down, with a command that anyone can give, and no folder of this machine."""
    text = text.replace(str(data_root()), "the data folder")
    lines = [f"#{line}" if line.startswith("#") else line for line in text.splitlines()]
    lines[0] += f" (`{name}`)"
    return "\n".join(
        f"`{portable(line.strip('`'))}`" if line.startswith("`gradmix ") else line for line in lines
    )


def portable(command: str) -> str:
    """Without the options that belong to the machine it was given on.

    >>> portable("gradmix reproduce table4 --out my/results --trials 3 --jobs=1")
    'gradmix reproduce table4 --trials 3'
    """
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        option, has_value, _ = word.partition("=")
        if option not in OF_THE_MACHINE:
            kept.append(word)
        elif not has_value:
            next(words, None)
    return shlex.join(kept)


def is_shown(experiment: Experiment, file: Path) -> bool:
    """Curves and what the experiment draws of its own (bars: of its first number); no picture of data."""
    if "data:image/" in file.read_text(encoding="utf-8"):
        return False
    endings = ["against-steps", *(ENDINGS[kind] for kind in experiment.figures if kind in ENDINGS)]
    if "bars" in experiment.figures:
        endings.append(slug(experiment.columns[0].label))
    return file.stem.endswith(tuple(endings))


if __name__ == "__main__":
    sys.exit(main())
