"""The same answers from a cluster: batches of file names go out over Ray Data, rows come back in order.

The images must be reachable under the same paths on every node, and gradmix installed there. The model is put
into Ray's object store once; each worker is a process with one core, that holds the model and answers whole
batches, cut where a single process would cut them. The rows are gathered and written here, so that a file
made by a cluster is resumed, checked and finished like any other.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..hub_file import MODEL_FILE
from ..recognition import Recognizer, load, save
from .decode_ahead import decoded
from .inputs import Input, Inputs
from .predict_file import Answering
from .stream import Answer, answers_of, batch_size

_SECONDS_TO_ANSWER = 10.0
_MOST_BLOCKS = 2000  # Ray Data works on blocks of batches; many small ones spread the work evenly


def answers_on_ray(address: str | None = None) -> Answering:
    """Who answers for :func:`~.predict_file.predict_to_file`: the cluster at ``address``.

    ``address`` as Ray knows it ("auto", "ray://host:10001", "host:6379"); None starts one on this machine,
    with its cores, unless this process is connected to one already.
    """
    try:
        import ray.data
    except ImportError:
        raise UserError("--ray needs the extra 'ray': pip install 'gradmix[ray]'") from None

    def answering(recognizer: Recognizer, inputs: Inputs, first: int) -> Iterator[list[Answer]]:
        batches = [
            {"names": [item.name for item in batch], "paths": [str(item.path.absolute()) for item in batch]}
            for batch in inputs.batches(batch_size(recognizer), first)
        ]
        if not batches:
            return
        with _connected(address), _ordered_and_quiet(), _in_one_line():
            # In a list, for Ray would fetch a bare reference before it starts a worker.
            stored = [ray.put(_content(recognizer))]
            resources: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]
            cores = max(1, int(resources.get("CPU", 1)))
            worker: Any = _Worker  # a class, of which Ray makes one instance in each process
            found = ray.data.from_items(batches, override_num_blocks=min(len(batches), _MOST_BLOCKS)).map(
                worker,
                fn_constructor_args=(stored,),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(cores, len(batches))),
                num_cpus=1,
            )
            for row in found.iter_rows():
                yield [Answer(*fields) for fields in json.loads(row["answers"])]

    return answering


def _content(recognizer: Recognizer) -> bytes:
    """A model file of this very recognizer, without pictures: the one on disk may have changed since."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, MODEL_FILE)
        save(recognizer.without_pictures(), file)
        return file.read_bytes()


class _Worker:
    """One process of the cluster."""

    def __init__(self, stored: list[Any]) -> None:
        import ray
        import torch

        torch.set_num_threads(1)  # its share of the machine
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, MODEL_FILE)
            file.write_bytes(ray.get(stored[0]))
            self.recognizer = load(file)

    def __call__(self, batch: dict[str, Any]) -> dict[str, str]:
        views = self.recognizer.recipe.views
        inputs = [Input(name, Path(path)) for name, path in zip(batch["names"], batch["paths"], strict=True)]
        rows = answers_of(self.recognizer, decoded(inputs, views.image_size, views.channels))
        return {"answers": json.dumps(rows)}


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """In a cluster; one that was there before stays connected."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
    try:
        _knock(address)
        ray.init(**own, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray has errors of its own, and passes on those of the network
        raise UserError(f"no Ray cluster at {address or 'this machine'} ({_reason(error)})") from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Raise at once if nobody answers at host:port; Ray itself would try for minutes, and print about it."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


@contextmanager
def _ordered_and_quiet() -> Iterator[None]:
    """Rows in the order of the inputs; the bar is gradmix's own."""
    import ray.data

    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = (context.execution_options.preserve_order, context.enable_progress_bars, logger.level)
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before[:2]
        logger.setLevel(before[2])


@contextmanager
def _in_one_line() -> Iterator[None]:
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        raise UserError(f"a Ray worker failed: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The last line of the innermost cause that says something: a worker's error is a whole traceback."""
    said, cause = type(error).__name__, error.__cause__ or error
    for link in (error, cause, cause.__cause__ or cause):
        said = str(link).strip() or said
    return said.splitlines()[-1][:300]
