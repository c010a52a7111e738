"""``gradmix data``: get, list, describe and check data; show corruptions; manage the cache."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from . import add_backbone_arguments, read_backbone

if TYPE_CHECKING:
    from ..data import CheckReport, Listing, SplitInfo
    from ..recognition.review import Review

_CLASSES_SHOWN = 20
_FINDINGS_SHOWN = 20  # of each kind; --all shows the rest
_SOURCE = "a folder, an .npz or .csv file, an archive (.zip, .tar), or a known set's name (mnist, cifar10, …)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the six subcommands to ``parser``."""
    parser.description = (
        "Look at data before training on it: a folder of class folders, Hub parquet files, .npz arrays, a "
        ".csv of paths and labels, or MNIST, CIFAR, SVHN, TinyImageNet and others as distributed."
    )
    ways = parser.add_subparsers(dest="way", required=True, metavar="get|list|info|check|corrupt|cache")
    get = _add_subcommand(
        ways,
        "get",
        "download a data set from the Hugging Face Hub, or go on with it",
        "gradmix data get mnist",
    )
    get.add_argument(
        "source", metavar="NAME", help="a known set's name, or hf://datasets/OWNER/NAME, perhaps @REVISION"
    )
    get.add_argument("--out", metavar="DIR", help="its folder (default: one of its name in the data root)")
    get.add_argument("--only", metavar="PATTERN", help="only files like this, such as 'data/*.parquet'")
    listing = _add_subcommand(
        ways, "list", "which known data sets are under the data root", "gradmix data list"
    )
    info = _add_subcommand(ways, "info", "shape, images per class and hash", "gradmix data info photos/")
    check = _add_subcommand(
        ways,
        "check",
        "decode every image; exit with 1 if something is broken, or gradmix train would refuse it",
        "gradmix data check photos/",
    )
    check.add_argument("--recipe", help="… with this recipe (default: small)")
    check.add_argument(
        "--model",
        type=Path,
        metavar="RUN",
        help="and list probably wrong labels, near duplicates and odd ones out, as this model sees them",
    )
    check.add_argument(
        "--out", type=Path, metavar="DIR", help="with --model: write the list and contact sheets there"
    )
    add_backbone_arguments(check)
    sheet = _add_subcommand(
        ways,
        "corrupt",
        "a contact sheet of one image: 15 corruptions, 5 severities",
        "gradmix data corrupt photo.jpg --size 64 --out sheet.png",
    )
    sheet.add_argument("image", type=Path, help="an image file")
    sheet.add_argument("--size", type=int, default=64, help="pixels per side, which severities follow (64)")
    sheet.add_argument("--seed", type=int, default=0, help="of noise and patterns (0)")
    sheet.add_argument(
        "--frost",
        metavar="FOLDER",
        help="pictures of frost (default: frost/ of the data root, or generated)",
    )
    sheet.add_argument("--out", type=Path, default=Path("corruptions.png"), help="(default corruptions.png)")
    cache = _add_subcommand(
        ways, "cache", "what decoded images and features take on disk", "gradmix data cache --clear"
    )
    cache.add_argument("--clear", action="store_true", help="delete it; all of it can be computed again")
    for way in (info, check):
        way.add_argument("source", help=_SOURCE)
        way.add_argument("--all", action="store_true", help="show every class or finding, not only the first")
    for way in (get, listing, info, check):
        way.add_argument(
            "--data-root",
            metavar="FOLDER",
            help="where known data sets lie (default: $GRADMIX_DATA, else ~/.cache/gradmix)",
        )


def run(args: argparse.Namespace) -> int:
    """Print the answer; return 0, or 1 if ``check`` found something broken."""
    from ..data import check_data, data_root, describe_data, list_data

    if args.way == "get":
        from ..data.download import get_data

        print(get_data(args.source, args.out, only=args.only, data_root=args.data_root))
        return 0
    if args.way == "list":
        _print_listings(list_data(args.data_root), str(data_root(args.data_root)))
        return 0
    if args.way == "cache":
        return _show_cache(args.clear)
    if args.way == "corrupt":
        return _write_sheet(args)
    if args.way == "info":
        _print_info(
            describe_data(args.source, data_root=args.data_root), None if args.all else _CLASSES_SHOWN
        )
        return 0
    if args.out is not None and args.model is None:
        raise UserError("--out goes with --model RUN")
    review = None if args.model is None else _prepare_review(args)
    report = _add_obstacles(check_data(args.source, data_root=args.data_root), args)
    most = None if args.all else _FINDINGS_SHOWN
    _print_check(report, most)
    if review is not None:
        _show_review(review(), args.out, most)
    return 1 if report.broken else 0


def _prepare_review(args: argparse.Namespace) -> Callable[[], Review]:
    """Open the model and check the options now; return the work, which takes longer."""
    from ..data import list_splits, load_images
    from ..recognition import load
    from ..recognition.discover import check_free
    from ..recognition.review import review_images

    if args.out is not None:
        check_free(args.out)
    recognizer = load(args.model, read_backbone(args))
    wanted = recognizer.image_format

    def review() -> Review:
        splits, sets = list_splits(args.source, data_root=args.data_root), []
        for split in splits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what cannot be read was listed before
                sets.append(
                    load_images(
                        args.source,
                        split=split,
                        data_root=args.data_root,
                        size=wanted.size,
                        channels=wanted.channels,
                        skip_bad=True,
                    )
                )
        return review_images(recognizer, sets, splits)

    return review


def _show_review(review: Review, out: Path | None, most: int | None) -> None:
    """Print one line per concern, the most certain first within each kind; write them if asked to."""
    shown: Counter[str] = Counter()
    for concern in review.concerns:
        shown[concern.kind] += 1
        if most is None or shown[concern.kind] <= most:
            print(f"{concern.kind}: {review.name(concern.first)}: {concern.what}")
    for kind, number in shown.items():
        if most is not None and number > most:
            print(f"… and {number - most} more: {kind} (--all shows them)")
    print(", ".join(f"{kind}: {number}" for kind, number in shown.items()) or "the model sees no concern")
    if out is not None:
        from ..report.review_sheet import write_review

        write_review(review, out)
        print(out)


def _add_obstacles(report: CheckReport, args: argparse.Namespace) -> CheckReport:
    """Add what keeps ``gradmix train`` from training on it: one finding per class that cannot be trained."""
    from ..data import Finding, has_validation_folder
    from ..recipe import load_recipe
    from ..recipe.choice import choose_recipe
    from ..recognition import find_obstacles
    from ..recognition.build import without_holdout
    from .sources import NONE_KNOWN_IN_VAL

    counts = report.counts.get("train") or report.counts.get("all")
    if not counts:  # unreadable, which is said, or without classes
        return report
    own_images = Path(args.source).exists()
    recipe = load_recipe(args.recipe or choose_recipe((), own_images).recipe)
    divided = has_validation_folder(args.source, data_root=args.data_root)
    obstacles = find_obstacles(counts, without_holdout(recipe) if divided else recipe)
    found = [
        Finding("cannot be trained", name or "all classes", reason, broken=True) for name, reason in obstacles
    ]
    if divided and not sum(report.counts.get("val", {}).values()):
        found.append(Finding("cannot be trained", "val", NONE_KNOWN_IN_VAL, broken=True))
    return replace(report, findings=(*report.findings, *found))


def _show_cache(clear: bool) -> int:
    from rich.table import Table
    from rich.text import Text

    from ..data import cache_contents, cache_limit, clear_cache
    from ..progress import print_table

    if clear:
        print(f"freed {clear_cache() / 2**30:.2f} GB")
        return 0
    limit = f"{cache_limit() / 2**30:g} GB"
    table = Table("what", "entries", "GB", "at most", "where", box=None)
    for folder in cache_contents():
        size, most = f"{folder.n_bytes / 2**30:.2f}", limit if folder.bounded else "unbounded"
        table.add_row(Text(folder.about), str(folder.entries), size, most, Text(str(folder.path)))
    print_table(table)
    return 0


def _write_sheet(args: argparse.Namespace) -> int:
    from ..data import load_image_files
    from ..data.corruptions import load_frost
    from ..files import write_atomically
    from ..report.corruption_sheet import draw_corruption_sheet

    images, _ = load_image_files([args.image], size=args.size, channels=3)
    frost = load_frost(args.frost or None)
    sheet = draw_corruption_sheet(images.images[0], frost, args.seed)
    write_atomically(args.out, lambda part: _write(part, sheet))
    print(f"{args.out}" + (" (frost: generated)" if frost.generated else ""))
    return 0


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _add_subcommand(
    ways: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str, example: str
) -> argparse.ArgumentParser:
    return ways.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}.", epilog=f"example: {example}"
    )


def _print_listings(listings: list[Listing], root: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("data set", "split", "images", "format", "where", title=Text(f"data in {root}"))
    table.columns[2].justify = "right"
    table.columns[4].overflow = "fold"  # a path must stay whole
    for listing in listings:
        if listing.path is None:
            table.add_row(listing.name, "-", "-", "-", Text(listing.trouble or "not there"))
            continue
        if not listing.splits:
            table.add_row(listing.name, "?", "?", listing.format, Text(str(listing.path)))
        for i, (split, number) in enumerate(listing.splits):
            first = (listing.format, Text(str(listing.path))) if i == 0 else ("", "")
            table.add_row(listing.name if i == 0 else "", split, f"{number:,}", *first)
    Console().print(table)


def _print_info(splits: list[SplitInfo], most: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text(f"{splits[0].name}: {splits[0].format} in {splits[0].path}"), soft_wrap=True)
    table = Table("split", "images", "classes", "channels x height x width", "hash")
    for split in splits:
        shape = " x ".join(str(side) for side in split.shape)
        with_images = sum(number > 0 for number in split.counts.values())
        bad = f" (and {split.unreadable:,} unreadable)" if split.unreadable else ""
        table.add_row(split.split, f"{split.images:,}{bad}", str(with_images), shape, split.hash)
    console.print(table)
    names = list(dict.fromkeys(name for split in splits for name in split.counts))
    classes = Table("class", *(split.split for split in splits))
    for name in names[:most]:
        classes.add_row(Text(name), *(str(split.counts.get(name, 0)) for split in splits))
    console.print(classes)
    if most is not None and len(names) > most:
        console.print(f"… and {len(names) - most} more classes (--all shows them)")


def _print_check(report: CheckReport, most: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    read = ", ".join(f"{number:,} in {split}" for split, number in report.images.items()) or "none"
    console.print(Text(f"{report.name} in {report.path}: readable images: {read}"), soft_wrap=True)
    totals = Counter(finding.kind for finding in report.findings)
    shown: Counter[str] = Counter()
    table = Table("finding", "where", "what")
    table.columns[1].overflow = "fold"
    for finding in sorted(report.findings, key=lambda finding: not finding.broken):
        shown[finding.kind] += 1
        if most is None or shown[finding.kind] <= most:
            style = "red" if finding.broken else ""
            table.add_row(Text(finding.kind, style), Text(finding.where), Text(finding.what))
    if report.findings:
        console.print(table)
    hidden = {kind: number - most for kind, number in totals.items() if most is not None and number > most}
    for kind, number in hidden.items():
        console.print(f"… and {number} more: {kind} (--all shows them)")
    summary = ", ".join(f"{kind}: {number}" for kind, number in totals.items()) or "nothing to complain about"
    console.print(Text(f"{'broken' if report.broken else 'usable'} ({summary})"), soft_wrap=True)
