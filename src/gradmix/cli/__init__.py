"""The command line: parse, call one function of the library, print a table or a path.

Each command is a module of this folder with ``add_arguments(parser)`` and ``run(args) -> exit code``;
nothing heavy is imported before a command runs, so that help answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, NoReturn

from .. import __version__
from ..errors import UserError, choose
from .recipe_fields import separate_recipe_fields

if TYPE_CHECKING:
    from ..models.user_backbone import UserBackbone

COMMANDS = {
    "demo": "train on handwritten digits that come with it, and show what it does (3 minutes)",
    "train": "train on a folder of images, a data set or a protocol of the literature",
    "evaluate": "measure how well a run tells known from unknown; writes JSON and an HTML page",
    "predict": "name images, or call them unknown",
    "explain": "show why an image was named or rejected; writes PNG, JSON and an HTML page",
    "calibrate": "set how many known images a model may call unknown",
    "enroll": "teach a model a new class from a few images, without training",
    "forget": "make a model forget a class",
    "discover": "group the images that a model does not know, ready to be named",
    "serve": "answer over HTTP: an API, and a page to drop images on",
    "export": "write a model as ONNX, with the few lines that use it without torch",
    "push": "give a model to the Hugging Face Hub; hf://owner/name is then a model everywhere",
    "recipe": "list the recipes, show what the fields of one mean, compare two",
    "data": "list, describe and check data sets and folders",
    "reproduce": "run a table or figure of the paper; writes JSON, Markdown, LaTeX and an HTML page",
    "bench": "measure speed on this machine",
}
_EXAMPLES = """examples:
  gradmix demo
  gradmix train photos/ --out runs/photos
  gradmix predict runs/photos new/*.jpg
  gradmix train --protocol mnist --trial 0 --recipe cpu/mnist --out runs/mnist
  gradmix evaluate runs/mnist

'gradmix COMMAND --help' tells more of each."""
_INTERRUPTED = 130  # what a shell reports for Ctrl-C
_SECONDS_FOR_FIRST_ERROR = 5.0


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def option_names(self) -> set[str]:
        return {name for action in self._actions for name in action.option_strings}

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Run one command; user mistakes end in one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if argv is None else argv
    _escape_odd_names()
    try:
        return _dispatch(arguments)
    except UserError as error:
        _print_error(str(error))
        if not _is_first_process():  # torchrun ends all when one ends: let the first print its error
            time.sleep(_SECONDS_FOR_FIRST_ERROR)
        return 2
    except KeyboardInterrupt:
        if _is_first_process():
            print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away, as `| head` does: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder without permission
        if os.environ.get("GRADMIX_DEBUG"):
            raise
        _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2


def _dispatch(arguments: list[str]) -> int:
    parser = Parser(
        prog="gradmix",
        description="Image classifiers that know what they do not know: open-set recognition with GradMix.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradmix {__version__}")
    listing = "\n".join(f"  {name:10s} {what}" for name, what in COMMANDS.items())
    parser.add_argument_group("commands", listing)
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="one of those above")
    if not arguments or arguments[0].startswith("-"):
        parser.parse_args(arguments)
        parser.print_help()
        return 0
    name = choose("command", arguments[0], COMMANDS)
    command = importlib.import_module(f".{name}", __package__)
    if _is_distributed() and not getattr(command, "SHARES_WORK", False):
        raise UserError(f"gradmix {name} works in one process; torchrun is for gradmix train")
    own = Parser(
        prog=f"gradmix {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(own)
    if hasattr(command, "describe_more") and {"-h", "--help"} & set(arguments):
        own.epilog = command.describe_more()
    words, fields = arguments[1:], dict[str, str]()
    if getattr(command, "TAKES_RECIPE_FIELDS", False):
        words, fields = separate_recipe_fields(words, own.option_names())
    args = own.parse_args(words, argparse.Namespace(recipe_fields=fields))
    from ..progress import show

    show(_is_first_process())
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        code: int = command.run(args)
    return code


def _escape_odd_names() -> None:
    """Let stdout show file names that are not UTF-8 as escapes, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _print_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Print a warning as one line, without the line of the package that raised it."""
    _print_error(str(message))


def _print_error(message: str) -> None:
    if _is_first_process():
        print(f"gradmix: {' '.join(message.split())}", file=sys.stderr)


def _is_distributed() -> bool:
    """Return whether torchrun started this process among others."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _is_first_process() -> bool:
    """Return whether this process prints: of several only the first does, also the others' mistakes."""
    return not _is_distributed() or os.environ.get("RANK", "0") == "0"


# The option that all commands share that use a model: a model file has the weights of the user's own network,
# and no code, so whoever opens it gives the code.
_CHANGED = "--changed-backbone"


def add_backbone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backbone",
        metavar="FILE.py:FUNCTION",
        help="the network that the model was made with, if that is one of your own",
    )
    add_changed_argument(parser)


def add_changed_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        _CHANGED, action="store_true", help="… though the file has changed since; its weights must still fit"
    )


def read_backbone(args: argparse.Namespace) -> UserBackbone | None:
    """Return the network that the command names; None if it names none."""
    from ..models.user_backbone import read_user_backbone

    if args.backbone is None:
        if args.changed_backbone:
            raise UserError(f"{_CHANGED} is about the file of the network: give --backbone too")
        return None
    return read_user_backbone(args.backbone, args.changed_backbone)


if __name__ == "__main__":
    sys.exit(main())
