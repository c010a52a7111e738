"""``python -m gradmix`` is the same as ``gradmix``."""

import os
import sys

from .cli import main

code = main()
if os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0":
    # One of torchrun's processes, but not the first: it has nothing left to write, and ends at once. While
    # Python takes itself apart, a thread that torch has left running would abort it: one run in sixteen did.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
sys.exit(code)
