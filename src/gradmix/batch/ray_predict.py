"""Predict on a Ray cluster: batches of file names are sent with Ray Data, rows come back in order.

The images must be reachable under the same paths on every node, and gradmix installed there. The model is put
into Ray's object store once; each worker is a process with one core that holds the model and predicts whole
batches, the same ones as a single process. This process writes the rows, so a file made by a cluster is
resumed, checked and finished like any other.
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
from ..models.backbone import Backbone
from ..models.user_backbone import UserBackbone
from ..recognition import Recognizer, load, save
from .predict_file import BatchPredictor
from .stream import Answer, Input, Inputs, choose_batch_size, decode_batch, predict_batch

_CONNECT_TIMEOUT = 10.0  # seconds
_MAX_BLOCKS = 2000  # Ray Data works on blocks of batches; many small ones spread the work evenly


def make_ray_predictor(address: str | None = None) -> BatchPredictor:
    """Make the ``predictor`` for :func:`~.predict_file.predict_to_file` that uses the cluster at ``address``.

    ``address`` as Ray takes it ("auto", "ray://host:10001", "host:6379"); None starts one on this machine,
    with its cores, unless this process is connected to one already.
    """
    try:
        import ray.data
    except ImportError:
        raise UserError("--ray needs the extra 'ray': pip install 'gradmix[ray]'") from None

    def predict(recognizer: Recognizer, inputs: Inputs, first: int) -> Iterator[list[Answer]]:
        batches = [
            {"names": [item.name for item in batch], "paths": [str(item.path.absolute()) for item in batch]}
            for batch in inputs.batches(choose_batch_size(recognizer), first)
        ]
        if not batches:
            return
        with _connect(address), _configure_ray_data(), _translate_errors():
            # In a list, because Ray fetches a bare reference before it starts a worker.
            stored = [ray.put(_pack_model(recognizer))]
            code = find_code(recognizer)
            resources: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]
            cores = max(1, int(resources.get("CPU", 1)))
            worker: Any = _Worker  # a class, of which Ray makes one instance in each process
            found = ray.data.from_items(batches, override_num_blocks=min(len(batches), _MAX_BLOCKS)).map(
                worker,
                fn_constructor_args=(stored, code),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(cores, len(batches))),
                num_cpus=1,
            )
            for row in found.iter_rows():
                yield [Answer(*fields) for fields in json.loads(row["answers"])]

    return predict


def _pack_model(recognizer: Recognizer) -> bytes:
    """Return a model file of this recognizer, without pictures; the one on disk may have changed since."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, MODEL_FILE)
        save(recognizer.without_pictures(), file)
        return file.read_bytes()


def find_code(recognizer: Recognizer) -> UserBackbone | None:
    """Return the user's file that the workers need to build the network; None if they need none."""
    encoder = recognizer.network.encoder
    if not isinstance(encoder, Backbone):
        return None
    if encoder.code is None:
        raise UserError("--ray: the workers must make the network, too: give --backbone FILE.py:FUNCTION")
    return encoder.code


class _Worker:
    """One process of the cluster: holds the model, predicts batches."""

    def __init__(self, stored: list[Any], code: UserBackbone | None = None) -> None:
        import ray
        import torch

        torch.set_num_threads(1)  # as many as the cores that Ray gives it
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, MODEL_FILE)
            file.write_bytes(ray.get(stored[0]))
            self.recognizer = load(file, code)

    def __call__(self, batch: dict[str, Any]) -> dict[str, str]:
        images = self.recognizer.image_format
        inputs = [Input(name, Path(path)) for name, path in zip(batch["names"], batch["paths"], strict=True)]
        rows = predict_batch(self.recognizer, decode_batch(inputs, images.size, images.channels))
        return {"answers": json.dumps(rows)}


@contextmanager
def _connect(address: str | None) -> Iterator[None]:
    """Connect to the cluster while the block runs; an existing connection is used and kept."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
    try:
        _check_reachable(address)
        ray.init(**own, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises its own errors and those of the network
        raise UserError(
            f"no Ray cluster at {address or 'this machine'} ({_describe_error(error)})"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raise OSError at once if host:port does not accept connections; Ray would retry for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()


@contextmanager
def _configure_ray_data() -> Iterator[None]:
    """Keep rows in the order of the inputs, and hide Ray's own bars and logs, while the block runs."""
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
def _translate_errors() -> Iterator[None]:
    """Raise a UserError of one line where a worker failed."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        raise UserError(f"a Ray worker failed: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    """Return the last line of the innermost cause with a message; a worker's error is a whole traceback."""
    message, cause = type(error).__name__, error.__cause__ or error
    for link in (error, cause, cause.__cause__ or cause):
        message = str(link).strip() or message
    return message.splitlines()[-1][:300]
