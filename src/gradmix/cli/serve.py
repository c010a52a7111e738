"""Serve a model over HTTP: an API, and a page to drop images on.

  gradmix serve runs/photos                        # http://127.0.0.1:7860/
  GRADMIX_TOKEN=… gradmix serve runs/photos --host 0.0.0.0

POST /v1/predict, /v1/explain, /v1/discover, /v1/enroll, /v1/forget; GET /healthz, /metrics, /openapi.json.
Listens on this machine only unless --host says otherwise. Once a token is set, changing the model needs it.
Needs the extra 'serve'. Ctrl-C finishes what runs, and stops.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from ..errors import UserError

_MEGABYTE = 2**20
_NEEDED = ("fastapi", "uvicorn", "prometheus_client", "gradio")  # the extra 'serve'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=7860, help="default 7860; 0 takes a free one")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with the token (or set $GRADMIX_TOKEN)"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name of this server"
    )
    parser.add_argument("--max-upload", type=int, default=32, metavar="MB", help="a request (default 32)")
    parser.add_argument("--max-images", type=int, default=64, metavar="N", help="a request (default 64)")
    parser.add_argument("--max-pixels", type=int, default=32_000_000, metavar="N", help="default 32,000,000")
    parser.add_argument(
        "--rate",
        type=float,
        default=50.0,
        metavar="N",
        help="requests a second a client (default 50; 0: any)",
    )


def run(args: argparse.Namespace) -> int:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UserError(f"gradmix serve needs {', '.join(missing)}; pip install 'gradmix[serve]'")
    from ..serve.auth import read_token
    from ..serve.desk import Desk
    from ..serve.limits import Limits
    from ..serve.run import serve, warn_if_open

    token = read_token(args.token_file)
    limits = Limits(args.max_upload * _MEGABYTE, args.max_images, args.max_pixels, args.rate)
    desk = Desk(args.model, limits, token)
    warn_if_open(args.host, token)
    serve(desk, args.host, args.port, args.allow_host)
    return 0
