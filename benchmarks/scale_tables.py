"""The tables of docs/scale.md: what the cost model says about machines that are not here.

python benchmarks/scaling.py --tables
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost_model.cost import Link, Machine, StepTime, step_memory, step_time, step_traffic, step_work
from cost_model.counts import StepCount, count_step
from cost_model.index_cost import FORMATS, Format, Index, exact, inverted, merge_bytes

from gradmix.training import Recipe, load_recipe, make_recipe

# Assumptions, as docs/scale.md explains them.
# A published 938 images/s of ResNet50 training in TF32 are 22.8 TFLOP/s, 15 % of the printed 156.
A100 = Machine(
    name="A100 80 GB",
    rate=0.146 * 156e12,
    matmul_rate=0.7 * 19.5e12,  # torch multiplies matrices in true float32 unless told otherwise
    memory_bandwidth=0.8 * 2.039e12,
    memory=80e9,
    devices=8,
    near=Link(10e-6, 0.7 * 300e9),  # NVLink: 300 GB/s each way
    far=Link(15e-6, 0.8 * 25e9),  # 200 Gb/s a GPU
    per_operation=25e-6,  # of torch's operators, called from Python
)
SERVER = Machine(
    name="server",
    rate=1e12,
    matmul_rate=2e12,
    memory_bandwidth=200e9,
    memory=1e12,
    devices=1,
    near=Link(0.0, 1.0),  # one device in a node: never used
    far=Link(30e-6, 0.8 * 12.5e9),  # 100 Gb/s
    nodes=16,
)

# Training images of a mean trial: the known classes' share of each official training set.
PROTOCOLS = {
    "mnist": 36_000,
    "svhn": 43_954,
    "cifar10": 30_000,
    "cifar+10": 20_000,
    "cifar+50": 20_000,
    "tinyimagenet": 10_000,
}
IMAGENET = 1_281_167
FEATURES, CLASSES = 10**9, 10_000
LISTS, PROBES = 65_536, 64


def print_tables() -> None:
    """Everything in docs/scale.md that is not measured."""
    print_paper()
    print_imagenet()
    print_growth()
    print_index()


def print_paper() -> None:
    rows = []
    for protocol, images in PROTOCOLS.items():
        recipe = load_recipe(f"paper/{protocol}")
        count = counted(recipe)
        steps = recipe.training.epochs * (images // recipe.training.batch_size)
        one, eight = (step_time(count, A100, p).total for p in (1, 8))
        work = step_work(count, 1)
        rows.append(
            (
                protocol,
                f"{steps:,}",
                f"{(work.network + work.losses) / 1e12:.2f}",
                f"{1000 * one:.0f}",
                f"{one * steps / 3600:.2g}",
                f"{step_memory(count, 1).total / 1e9:.1f}",
                f"{1000 * eight:.0f}",
                f"{eight * steps / 3600:.2g}",
                f"{step_memory(count, 8).total / 1e9:.1f}",
                f"{sent(count, 8) / 1e6:.0f}",
            )
        )
    one_gpu = ("ms a step on 1 GPU", "hours", "GB")
    eight_gpus = ("ms a step on 8 GPUs", "hours on 8", "GB each", "MB sent by each")
    print_table(("protocol", "steps", "TFLOP a step", *one_gpu, *eight_gpus), rows)


def imagenet_recipe(batch: int) -> Recipe:
    return make_recipe({"encoder": "resnet50", "image_size": 224, "batch_size": batch})


def print_imagenet() -> None:
    cluster = replace(A100, nodes=8)
    rows = []
    for each in (32, 64, 128):
        count = counted(imagenet_recipe(64 * each))
        now = step_time(count, cluster, 64)
        steps = IMAGENET // (64 * each)
        traffic = {t.what: t for t in step_traffic(count, 64)}
        rows.append(
            (
                f"{64 * each:,}",
                f"{step_work(count, 64).network / 1e12:.1f}",
                f"{step_memory(count, 64).total / 1e9:.0f}",
                f"{traffic['BatchNorm'].calls}",
                f"{sent(count, 64) / 1e6:.0f}",
                *parts(now),
                f"{now.communication / now.total:.0%}",
                f"{steps * now.total / 60:.1f}",
                f"{100 * steps * now.total / 3600:.1f}",
            )
        )
    titles = ("batch", "TFLOP a GPU", "GB a GPU", "BatchNorm calls", "MB sent a GPU", *PARTS)
    print_table((*titles, "comm. share", "minutes an epoch", "hours for 100"), rows)


def print_growth() -> None:
    """The same batch on more GPUs, and more GPUs with a batch each."""
    cifar = counted(load_recipe("paper/cifar10"))
    rows = []
    for gpus in (1, 2, 4, 8, 16, 32, 64):
        rows.append(growth_row("CIFAR10, batch 256", cifar, gpus, step_time(cifar, A100, 1).total / gpus))
    alone = step_time(counted(imagenet_recipe(64)), A100, 1).total
    for gpus in (8, 64, 256, 1024):
        rows.append(growth_row("ImageNet, 64 a GPU", counted(imagenet_recipe(64 * gpus)), gpus, alone))
    print_table(
        ("training", "GPUs", *PARTS, "of it gradients", "comm. share", "efficiency", "GB a GPU"), rows
    )


def growth_row(name: str, count: StepCount, gpus: int, ideal: float) -> tuple[str, ...]:
    now = step_time(count, replace(A100, nodes=-(-gpus // A100.devices)), gpus)
    gradients = f"{1000 * now.hideable:.1f}"
    share = f"{now.communication / now.total:.0%}"
    memory = f"{step_memory(count, gpus).total / 1e9:.1f}"
    return name, f"{gpus:,}", *parts(now), gradients, share, f"{ideal / now.total:.0%}", memory


def print_index() -> None:
    """The fewest devices that hold each format, and more of them."""
    cluster = replace(A100, nodes=8)
    rows = [
        index_row(form, machine, Index(FEATURES, 128, CLASSES, form).devices_needed(machine))
        for form in FORMATS
        for machine in (SERVER, cluster)
    ]
    rows += [index_row(FORMATS[0], SERVER, 16), index_row(FORMATS[0], cluster, 64)]
    exactly = ("exact: ms for 1 query", "ms for 512", "queries/s")
    print_table(("features as", "GB", "held by", *exactly, f"{PROBES} lists: ms for 512", "queries/s"), rows)
    index = Index(FEATURES, 128, CLASSES)
    whole, split = (merge_bytes(index, together) for together in (True, False))
    print(f"One query, exactly: {2 * index.features * index.dim / 1e9:.0f} GFLOP.")
    print(f"To merge, a device sends {whole} bytes a query if no class is split, else {split:,}.")


def index_row(form: Format, machine: Machine, devices: int) -> tuple[str, ...]:
    index = Index(FEATURES, 128, CLASSES, form)
    single, many = (exact(index, machine, devices, queries) for queries in (1, 512))
    lists = inverted(index, machine, devices, 512, LISTS, PROBES)
    return (
        form.name,
        f"{index.bytes / 1e9:.0f}",
        f"{devices} × {machine.name}",
        f"{1000 * single.seconds:.0f}",
        f"{1000 * many.seconds:,.0f}",
        f"{many.per_second:,.0f}",
        f"{1000 * lists.seconds:.1f}",
        f"{lists.per_second:,.0f}",
    )


PARTS = ("network ms", "losses ms", "around ms", "comm. ms")


def parts(now: StepTime) -> tuple[str, ...]:
    return tuple(f"{1000 * s:.1f}" for s in (now.network, now.losses, now.around, now.communication))


def sent(count: StepCount, processes: int) -> float:
    return sum(traffic.sent(processes) for traffic in step_traffic(count, processes))


_counts: dict[str, StepCount] = {}


def counted(recipe: Recipe) -> StepCount:
    """``count_step``, each recipe once."""
    key = recipe.to_yaml()
    if key not in _counts:
        _counts[key] = count_step(recipe)
    return _counts[key]


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, ready for the page."""
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()
