"""The page of an experiment: paper and here side by side, the figures, and all that the numbers depend on."""

from __future__ import annotations

from ...files import write_text
from ...report.figure_files import write_figures
from ...report.page import Figure, Page, Table, write
from ...report.tables import Cell
from ..declaration import Bench
from ..engine.results import ExperimentResult, TrialFiles
from ..measures import MEASURES
from .comparisons import rank_rows
from .figures import corruptions_figure, curves_figure, maps_figure, rows_figure
from .origin import describe_versions, find_repeated_splits
from .tables import DEVIATIONS, SEEDS, compare_with_paper, join_pairs, list_facts, to_latex, to_markdown

_MOST_BARS = 6  # bar figures on a page: one for each bench and number


def write_experiment(result: ExperimentResult) -> None:
    """Write Markdown, LaTeX, the page and its figures into the experiment's folder, beside result.json."""
    page = build_page(result)
    write_text(result.folder / "result.md", to_markdown(result))
    write_text(result.folder / "result.tex", to_latex(result))
    write_figures(page.figures, result.folder / "figures")
    write(page, result.folder / "report.html")


def build_page(result: ExperimentResult) -> Page:
    """Build the page: figures first, then the tables, then what was run."""
    plan = result.plan
    claims = " ".join(f"“{claim}”" for claim in result.paper.claims)
    tables = [
        Table(table.heading, *join_pairs(table), "" if i else f"The paper: {claims}")
        for i, table in enumerate(compare_with_paper(result))
    ]
    if not claims:
        tables = [Table(t.heading, t.headers, t.rows) for t in tables]
    return Page(
        title=f"{plan.experiment.paper_item}: {plan.experiment.title}",
        subtitle=_build_subtitle(result),
        figures=[*_draw_own_figures(result), *_draw_step_figures(result)],
        tables=tables,
        details=_list_details(result),
    )


def _build_subtitle(result: ExperimentResult) -> str:
    """Return the facts without the long lists of deviations, seeds and hashes, which are details."""
    shown = [fact for fact in list_facts(result) if not fact.startswith((DEVIATIONS, SEEDS))]
    if result.deviations:
        shown.insert(2, "It is smaller than the paper's: what was cut is listed at the end.")
    return " ".join(shown)


def _draw_own_figures(result: ExperimentResult) -> list[Figure]:
    kinds = {
        "bars": _draw_bars,
        "ranks": _draw_ranks,
        "corruptions": _draw_corruptions,
        "area": _draw_area,
        "maps": _draw_maps,
    }
    return [figure for kind in result.plan.experiment.figures for figure in kinds[kind](result)]


def _draw_bars(result: ExperimentResult) -> list[Figure]:
    figures = []
    arms = result.arms
    for bench in _list_benches_run(result):
        for column in result.plan.experiment.columns:
            scale = 100.0 if column.percent else 1.0
            found = [result.summary(arm.name, bench.name, column.metric) for arm in arms]
            drawing = rows_figure(
                [arm.label for arm in arms],
                [None if s is None else scale * s.mean for s in found],
                [None if s is None or s.std is None else scale * s.std for s in found],
                [result.paper.get(arm.name, bench.name, column.metric) for arm in arms],
                column.label + (", %" if column.percent else ""),
            )
            figures.append(Figure(f"{bench.label}: {column.label}", drawing, "Mean ± standard deviation."))
    return figures[:_MOST_BARS]


def _draw_ranks(result: ExperimentResult) -> list[Figure]:
    """Draw the mean rank of every row, and half of the critical difference either way."""
    column = result.plan.experiment.columns[0]
    ranks = rank_rows(result, column.metric)
    if ranks is None:
        return []
    arms = sorted((a for a in result.arms if a.name in ranks.mean), key=lambda arm: ranks.mean[arm.name])
    drawing = rows_figure(
        [arm.label for arm in arms],
        [ranks.mean[arm.name] for arm in arms],
        [ranks.critical / 2] * len(arms),
        [None] * len(arms),
        "mean rank (1 is the best)",
    )
    caption = (
        f"Over {ranks.cells} trials of all data sets that every row has. Rows whose lines do not overlap "
        f"differ by more than {ranks.critical:.2f}, more than by chance (Nemenyi, 5 %; as if trials were "
        "independent)."
    )
    return [Figure(f"{column.label}: mean rank of the rows", drawing, caption)]


def _draw_corruptions(result: ExperimentResult) -> list[Figure]:
    figures = []
    for bench in _list_benches_run(result):
        drops = {}
        for arm in result.arms:
            trials = result.of(arm.name, bench.name)
            names = [name for name in (trials[0].metrics if trials else {}) if name.startswith("type/")]
            found = {name.removeprefix("type/"): result.summary(arm.name, bench.name, name) for name in names}
            if found:
                drops[arm.label] = {name: summary.mean for name, summary in found.items() if summary}
        if drops:
            order = list(next(iter(drops.values())))
            drawing = corruptions_figure(drops, order)
            figures.append(Figure(f"{bench.label}: drop by corruption", drawing, "Shorter is better."))
    return figures


def _draw_area(result: ExperimentResult) -> list[Figure]:
    figures = []
    for bench in _list_benches_run(result):
        for kind in ("known", "unknown"):
            curves = {
                arm.label: [t.series[f"{kind}/wide"] for t in result.of(arm.name, bench.name)]
                for arm in result.arms
            }
            drawing = curves_figure(curves, "threshold τ", "activated area S_M", log_x=True)
            heading = f"{bench.label}: activated area, {kind} images"
            figures.append(Figure(heading, drawing, "The paper shows τ from 1e-5 to 1e-3."))
    return figures


def _draw_maps(result: ExperimentResult) -> list[Figure]:
    files = TrialFiles(result.folder)
    figures = []
    for bench in _list_benches_run(result):
        first = {
            arm.label: files.pictures(result.of(arm.name, bench.name)[0].name)
            for arm in result.arms
            if result.of(arm.name, bench.name)
        }
        for kind in ("known", "unknown"):
            images = next(iter(first.values()))[f"{kind}/image"]
            heats = {label: found[f"{kind}/heat"] for label, found in first.items()}
            figures.append(
                Figure(
                    f"{bench.label}: {kind} images",
                    maps_figure(images, heats),
                    "Where the similarity to the nearest training images comes from (LayerCAM).",
                )
            )
    return figures


def _draw_step_figures(result: ExperimentResult) -> list[Figure]:
    name = MEASURES[result.plan.experiment.measure].curve
    figures = []
    for bench in _list_benches_run(result):
        curves = {
            arm.label: [t.curve for t in result.of(arm.name, bench.name) if t.curve[0]] for arm in result.arms
        }
        curves = {label: trials for label, trials in curves.items() if trials}
        if curves:
            drawing = curves_figure(curves, "step", name)
            caption = "Mean over trials, with a band of ± one standard deviation; on few test images."
            figures.append(Figure(f"{bench.label}: {name} against steps", drawing, caption))
    return figures


def _list_benches_run(result: ExperimentResult) -> list[Bench]:
    ran = {trial.bench for trial in result.trials}
    return [bench for bench in result.benches if bench.name in ran]


def _list_details(result: ExperimentResult) -> dict[str, Cell]:
    plan, trials = result.plan, result.trials
    seeds = sorted({trial.seed for trial in trials})
    splits = sorted({f"{t.bench} {t.trial}: {t.split_hash}" for t in trials if t.split_hash})
    details: dict[str, Cell] = {
        "command": result.command,
        "preset": plan.preset.name,
        "family of splits": plan.family,
        "trials": len(trials),
        "minutes of training": round(result.minutes, 1),
        "core-minutes": round(result.core_minutes, 1),
        "steps": ", ".join(sorted({f"{trial.steps:,}" for trial in trials})),
        "seeds": ", ".join(map(str, seeds)),
        "split hashes": "; ".join(splits),
        "the same split twice": "; ".join(find_repeated_splits(result)),
        "cut": "; ".join(result.deviations),
        "versions": describe_versions(result),
    }
    return {name: value for name, value in details.items() if value != ""}
