"""``python -m gradmix`` is the same as ``gradmix``."""

import sys

from .cli import main

sys.exit(main())
