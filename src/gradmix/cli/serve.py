"""Serve a model over HTTP: an API, and a page to drop images on.

  gradmix serve runs/photos                        # http://127.0.0.1:7860/
  GRADMIX_TOKEN=… gradmix serve runs/photos --host 0.0.0.0

POST /v1/predict, /v1/explain, /v1/discover, /v1/enroll, /v1/forget, /v1/undo;
GET /v1/classes, /livez, /readyz, /metrics, /openapi.json.
Listens on this machine only unless --host says otherwise; then a token is made and printed, if none is set.
Once there is a token, changing the model needs it.
Needs the extra 'serve'. Ctrl-C finishes what runs, and stops.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from ..errors import UserError
from . import add_backbone_arguments, read_backbone

_MEGABYTE = 2**20
_PIXELS = (
    ("--max-request-pixels", 200_000_000, "pixels per request, all images together"),
    ("--max-client-pixels", 200_000_000, "pixels of one client being decoded"),
    ("--max-total-pixels", 400_000_000, "pixels of all clients being decoded"),
)
_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")  # the extra 'serve'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--detector", default="", help="decide by another score than the model's own")
    parser.add_argument("--port", type=int, default=7860, help="default 7860; 0 takes a free one")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with the token (or set $GRADMIX_TOKEN)"
    )
    parser.add_argument(
        "--token", choices=("none",), help="none: anybody may change the model, even beyond this machine"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name of this server"
    )
    parser.add_argument("--max-upload", type=int, default=32, metavar="MB", help="per request (default 32)")
    parser.add_argument("--max-images", type=int, default=64, metavar="N", help="per request (default 64)")
    parser.add_argument(
        "--max-pixels", type=int, default=32_000_000, metavar="N", help="per image (default 32,000,000)"
    )
    for name, most, what in _PIXELS:
        parser.add_argument(name, type=int, default=most, metavar="N", help=f"{what} (default {most:,})")
    parser.add_argument(
        "--deadline",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds within which a request is answered or refused (default 30)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=50.0,
        metavar="N",
        help="requests per second of one client (default 50; 0: any)",
    )
    parser.add_argument(
        "--max-connections", type=int, default=256, metavar="N", help="of one client (default 256)"
    )
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UserError(f"gradmix serve needs {', '.join(missing)}; pip install 'gradmix[serve]'")
    from ..serve.access import choose_token
    from ..serve.limits import Limits
    from ..serve.server import serve, warn_if_open
    from ..serve.service import ModelService

    token, made = choose_token(args.host, args.token_file, args.token is not None)
    limits = Limits(
        args.max_upload * _MEGABYTE,
        args.max_images,
        args.max_pixels,
        args.rate,
        request_pixels=args.max_request_pixels,
        client_pixels=args.max_client_pixels,
        total_pixels=args.max_total_pixels,
        answer_seconds=args.deadline,
        connections=args.max_connections,
    )
    service = ModelService(args.model, limits, token, args.detector, read_backbone(args))
    if made:
        print(
            f"gradmix: whoever teaches the model needs this token, made for this start: {token}\n"
            "gradmix: choose one with --token-file or $GRADMIX_TOKEN; --token none does without",
            file=sys.stderr,
            flush=True,
        )
    warn_if_open(args.host, token)
    serve(service, args.host, args.port, args.allow_host)
    return 0
