"""docs/reproduced.md: what `gradmix reproduce` has printed, all experiments on one page.

python benchmarks/collect_results.py reproduce/ --preset cpu --into docs/

Tables and sentences are those of each result.md, figures those of its figures/. Pictures of data sets
(fig-maps) are left out: they are not ours to publish.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from gradmix.experiments import EXPERIMENTS

HEAD = """# The paper's experiments on two CPU cores
Written by `python benchmarks/collect_results.py` from what `gradmix reproduce EXPERIMENT` printed.
What it means is in [results.md](results.md), how it is made in [reproduce.md](reproduce.md).
"""
FIGURES = {"bars": "auroc", "steps": "against-steps", "area": "activated-area", "drop": "drop-by-corruption"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the folder of gradmix reproduce")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--into", type=Path, default=Path("docs"))
    args = parser.parse_args()
    pictures = args.into / "images" / "reproduced"
    shutil.rmtree(pictures, ignore_errors=True)
    parts = [HEAD]
    for name in EXPERIMENTS:
        folder = args.out / f"{name}-{args.preset}"
        if not (folder / "result.md").is_file():
            continue
        text = (folder / "result.md").read_text(encoding="utf-8")
        lines = [f"#{line}" if line.startswith("#") else line for line in text.splitlines()]
        lines[0] += f" (`{name}`)"
        parts.append("\n".join(lines))
        for file in sorted((folder / "figures").glob("*.svg")):
            if not any(kind in file.stem for kind in FIGURES.values()):
                continue
            pictures.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, pictures / f"{name}-{file.name}")
            alt = file.stem.replace("-", " ")
            parts.append(f"![{alt}](images/reproduced/{name}-{file.name})")
    (args.into / "reproduced.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(args.into / "reproduced.md")


if __name__ == "__main__":
    main()
