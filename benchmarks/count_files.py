"""How many files of the package it takes to name one image: those that somebody who follows it reads.

  python benchmarks/count_files.py RUN IMAGE

Runs `gradmix predict` under a trace and prints the files in which a function ran; what runs while a module is
being imported (class bodies, tables) does not count. The files that were only imported are listed after them.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import sys
import threading
from pathlib import Path
from types import FrameType


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="a run folder")
    parser.add_argument("image", help="an image file")
    args = parser.parse_args()
    called, imported = touched(["predict", args.run, args.image])
    print("\n".join(f"  {file}" for file in sorted(called)))
    print(f"only imported: {', '.join(sorted(imported - called))}")
    print(f"{len(called)} files take part, {len(imported - called)} more are imported")


def touched(words: list[str]) -> tuple[set[str], set[str]]:
    """Files of the package in which a function ran, and files that were imported, by ``gradmix WORDS``."""
    import gradmix

    package = str(Path(gradmix.__file__).parent)
    called: set[str] = set()

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # no module, no class body
        if event == "call" and is_function and code.co_filename.startswith(package) and not importing(frame):
            called.add(code.co_filename[len(package) + 1 :])

    threading.setprofile(on_call)
    sys.setprofile(on_call)
    try:
        from gradmix.cli import main as command

        with contextlib.redirect_stdout(io.StringIO()):
            code = command(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert code == 0, f"gradmix {' '.join(words)} ended with {code}"
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    imported = {file[len(package) + 1 :] for file in files if file.startswith(package)}
    return called, imported


def importing(frame: FrameType | None) -> bool:
    """Whether a module body is being run further up the stack, below :func:`touched`."""
    while frame is not None and frame.f_code is not touched.__code__:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
