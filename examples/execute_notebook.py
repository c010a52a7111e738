"""Run the code cells of a notebook from top to bottom, without Jupyter; with --write, keep what they print.

    python examples/execute_notebook.py examples/tour.ipynb --write

Cells are plain Python. What a cell prints, and what its last line evaluates to (a picture as PNG), is its
output. The working directory is a new temporary one, so that a notebook finds what its reader would find.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def execute(notebook: Notebook) -> Notebook:
    """Return the notebook with the outputs of its cells, which share one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = run_cell("".join(cell["source"]), names, number)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell; return what Jupyter would show below it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": [clean(line) for line in lines]})
    if value is not None:
        shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append(shown | {"data": show(value)})
    return outputs


def show(value: Any) -> dict[str, Any]:
    """Return a value as a notebook holds it: a picture, or text."""
    data: dict[str, Any] = {"text/plain": [repr(value) if not hasattr(value, "_repr_png_") else "picture"]}
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return data


def clean(line: str) -> str:
    """Take the spaces away with which a table fills its last column."""
    return line.rstrip() + "\n" if line.endswith("\n") else line


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebook")
    args = parser.parse_args()
    file = args.notebook.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        done = execute(json.loads(file.read_text(encoding="utf-8")))
    for cell in done["cells"]:
        for output in cell.get("outputs", ()):
            print(*output.get("text", output.get("data", {}).get("text/plain", ())), sep="", end="\n")
    if args.write:
        file.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
