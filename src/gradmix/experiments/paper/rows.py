"""The rows of the comparison methods: each with the recipe that it was published with."""

from __future__ import annotations

from typing import Any

from ..declaration import Arm


def _declare(name: str, label: str, **fields: Any) -> Arm:
    return Arm(name, label, {"method": name, **fields}, recipe=name)


CE = Arm("ce", "Cross Entropy", {"method": "ce", "detector": "msp"})
OPENMAX = Arm("openmax", "OpenMax", {"method": "ce", "detector": "openmax"})  # the same training as CE's
CE_PLUS = Arm("ce-plus", "Cross Entropy, strong recipe (MLS)", {"method": "ce"}, recipe="ce-plus")
G_OPENMAX = _declare("g-openmax", "G-OpenMax")
OSRCI = _declare("osrci", "OSRCI")
C2AE = _declare("c2ae", "C2AE")
GRROSR = _declare("grrosr", "GRROSR")
PROSER = _declare("proser", "PROSER")
ARPL = _declare("arpl", "ARPL")
ARPL_CS = _declare("arpl-cs", "ARPL-CS")
OPENAUC = _declare("openauc", "OpenAUC")
CONOSR = _declare("conosr", "ConOSR")
MEDAF = _declare("medaf", "MEDAF")
GRADMIX = Arm("gradmix", "GradMix")
