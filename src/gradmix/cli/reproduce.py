"""Run a table or figure of the paper, and write it with the paper's numbers beside those of here.

  gradmix reproduce --list
  gradmix reproduce table2 --preset smoke                      # does it run? seconds, no data needed
  gradmix reproduce table2 --preset cpu --protocol cifar10     # some core-minutes per training
  gradmix reproduce table2 --preset paper --dry-run            # what it would do, and how long it takes
  gradmix reproduce fig-mixers --method none,gradmix --trials 3
  gradmix reproduce table2 --method gradmix,my_method.py       # your own method as one more row
  gradmix reproduce table2 --preset paper --max-steps 2        # two true steps of each training

Stopped, it goes on where it was when given again; what is done is not done again without --force. Fields of
the recipe are options too (--batch-size 128) and hold for every row. Results are in OUT/EXPERIMENT-PRESET
(with -FAMILY, if it is not arpl_2020): result.json, result.md, result.tex, report.html, and its figures as
SVG files.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, choose

if TYPE_CHECKING:
    from ..experiments.engine.results import ExperimentResult
    from ..experiments.engine.run import Runner

TAKES_RECIPE_FIELDS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="table2, fig-mixers, …: see --list"
    )
    parser.add_argument("--list", action="store_true", help="name every experiment")
    parser.add_argument("--preset", default="cpu", help="paper, cpu (default), decide or smoke")
    parser.add_argument("--protocol", metavar="A,B", help="only these data sets or protocols of it")
    parser.add_argument(
        "--method", metavar="A,B", help="only these rows; a .py or .yaml file adds your own as a row"
    )
    parser.add_argument("--trials", metavar="N|I,J", help="the first N trials, or those numbered I,J,…")
    parser.add_argument("--family", default="arpl_2020", help="family of splits (default arpl_2020)")
    parser.add_argument("--max-steps", type=int, metavar="N", help="stop each training after N steps")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="trainings at a time (cpu: one per core; else 1)"
    )
    parser.add_argument("--helper", action="store_true", help=argparse.SUPPRESS)  # one of several jobs
    parser.add_argument("--dry-run", action="store_true", help="print the plan and how long it takes here")
    parser.add_argument("--skip-missing", action="store_true", help="leave out what has no data, and say so")
    parser.add_argument("--force", action="store_true", help="train and measure again what is done")
    parser.add_argument(
        "--out", type=Path, default=Path("reproduce"), metavar="DIR", help="folder (default reproduce)"
    )
    parser.add_argument(
        "--reuse",
        type=Path,
        metavar="DIR",
        help="take finished trials from the results in DIR (an earlier --out)",
    )
    parser.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")


def run(args: argparse.Namespace) -> int:
    from ..experiments import EXPERIMENTS

    if args.list:
        _print_list()
        return 0
    if not args.experiment:
        raise UserError("which experiment? gradmix reproduce --list names them")
    choose("experiment", args.experiment, EXPERIMENTS)
    runner = _make_runner(args)
    if args.force and args.reuse is not None:
        raise UserError("--force does again what is done, --reuse takes it from elsewhere: give one of them")
    if args.dry_run:
        _print_plan(runner, args.skip_missing)
        return 0
    from ..experiments.engine.jobs import extend_this_command, run_helpers
    from ..experiments.report.page import write_experiment
    from ..training import Interrupted

    if args.helper:
        return _run_as_helper(runner, args.skip_missing)
    if args.reuse is not None:
        print(f"{runner.take_over(args.reuse)} trials taken from {args.reuse}", file=sys.stderr)
    if args.force:
        runner.forget(args.skip_missing)
        runner = replace(runner, again=False)
    try:
        with run_helpers(extend_this_command("--helper"), runner.jobs, runner.say):
            result = runner.run(args.skip_missing)
    except Interrupted as stop:
        way = "the same command without --force" if args.force else "the same command again"
        print(f"{stop}; give {way} to go on", file=sys.stderr)
        write_experiment(runner.collect_so_far())
        return 130
    write_experiment(result)
    _print_result(result)
    print(result.folder / "report.html")
    return 0


def _run_as_helper(runner: Runner, skip_missing: bool) -> int:
    """Work as one of several jobs: do what nobody does, and leave bars and the result to the first."""
    from ..progress import show
    from ..training import Interrupted

    show(False)
    try:
        runner.work(runner.look(skip_missing, timed=False), wait=False)
    except Interrupted:
        return 130
    return 0


def _make_runner(args: argparse.Namespace) -> Runner:
    from ..experiments import PRESETS, get_experiment
    from ..experiments.engine.own_method import load_own_arm
    from ..experiments.engine.plan import make_plan
    from ..experiments.engine.run import Runner
    from ..machine import count_cores

    words = _split_list(args.method)
    own = [load_own_arm(word) for word in words if _is_file(word)]
    if args.max_steps is not None and args.max_steps < 1:
        raise UserError(f"--max-steps must be at least 1, not {args.max_steps}")
    plan = make_plan(
        get_experiment(args.experiment),
        PRESETS[choose("preset", args.preset, PRESETS)],
        protocols=_split_list(args.protocol),
        methods=[word for word in words if not _is_file(word)],
        own=own,
        trials=_trials(args.trials),
        family=args.family,
        max_steps=args.max_steps,
        overrides=args.recipe_fields,
    )
    jobs = args.jobs
    if jobs is None:
        jobs = count_cores() if plan.preset.name in ("cpu", "decide") and not args.max_steps else 1
    if jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {args.jobs}")
    return Runner(
        plan,
        args.out,
        args.data_root,
        args.recipe_fields,
        shlex.join(["gradmix", *sys.argv[1:]]),
        lambda line: print(line, file=sys.stderr, flush=True),
        min(jobs, len(plan.trainings())),
        again=args.force and not args.helper,  # by then, the first of the jobs has forgotten what was done
    )


def _split_list(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()] if words else []


def _is_file(word: str) -> bool:
    return word.partition(":")[0].endswith((".py", ".yaml", ".yml"))


def _trials(given: str | None) -> list[int] | None:
    """Return trial numbers: ``3`` is the first three, ``0,2`` are these two."""
    if given is None:
        return None
    try:
        numbers = [int(word) for word in given.split(",") if word.strip()]
    except ValueError:
        raise UserError(f"--trials takes how many (3) or which (0,2,4), not '{given}'") from None
    if "," not in given:
        numbers = list(range(numbers[0])) if numbers else []
    if not numbers or min(numbers) < 0:
        raise UserError(f"--trials takes how many (3) or which (0,2,4), not '{given}'")
    return list(dict.fromkeys(numbers))


def _print_list() -> None:
    from rich.table import Table
    from rich.text import Text

    from ..experiments import EXPERIMENTS
    from ..progress import print_table

    table = Table("experiment", "in the paper", "what", "rows", box=None)
    for name, experiment in EXPERIMENTS.items():
        rows = ", ".join(arm.name for arm in experiment.arms)
        table.add_row(name, experiment.paper_item, Text(experiment.title), Text(rows))
    print_table(table)


def _print_plan(runner: Runner, skip_missing: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..experiments.engine.estimate import format_duration
    from ..experiments.engine.run import describe
    from ..experiments.engine.survey import summarize_work
    from ..progress import print_table

    found = runner.look(skip_missing)
    table = Table("data", "row", "trials", "TFLOP", "steps", "time here", "core-minutes", box=None)
    for row in summarize_work(found):
        trials = ",".join(map(str, row.trials))
        took, cores = (
            ("seconds", "")
            if row.each is None
            else (format_duration(row.each.seconds), f"{row.each.core_seconds / 60:.1f}")
        )
        flop = "" if row.operations is None else f"{row.operations / 1e12:.2f}"
        table.add_row(Text(row.bench), Text(row.arm), trials, flop, f"{row.steps:,}", took, cores)
    print_table(table)
    if found.durations:
        print("TFLOP, steps, time and core-minutes are those of one training")
    print(describe(found, runner.jobs))
    for bench, why in found.plan.left_out.items():
        print(f"  without data, left out: {bench} ({why})")
    for deviation in found.plan.deviations:
        print(f"  other than in the paper: {deviation}")


def _print_result(result: ExperimentResult) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..experiments.report.tables import compare_with_paper, flatten_rows, list_facts, list_headers
    from ..progress import print_table

    for compared in compare_with_paper(result):
        table = Table(title=Text(compared.heading), box=None)
        for header in list_headers(compared):
            table.add_column(Text(header))
        for row in flatten_rows(compared):
            table.add_row(*map(Text, row))
        print_table(table)
    for fact in list_facts(result):
        print(fact)
