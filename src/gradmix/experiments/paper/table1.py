"""Table 1: does self-supervision make features more diverse, and does that help?"""

from __future__ import annotations

from ..declaration import Arm, Column, Experiment
from .benches import CIFAR10, TINY

TABLE1 = Experiment(
    name="table1",
    title="Feature diversity and open-set recognition, with and without self-supervision",
    paper_item="Table 1",
    measure="diversity",
    columns=(
        Column("id", "ID", percent=False),
        Column("nno", "A_nno"),
        Column("entropy", "A_enp"),
        Column("msp", "A_msp"),
    ),
    benches=(CIFAR10, TINY),
    arms=(
        Arm("ce", "CE", {"method": "ce", "detector": "msp"}),
        Arm("ce+ssl", "CE + SSL", {"method": "ce+ssl", "theta": 1.0, "lam": 1.0, "detector": "msp"}),
        Arm("supcon", "SupCon", {"theta": 1.0, "lam": 0.0, "mixer": "none"}),
        Arm("supcon+ssl", "SupCon + SSL", {"theta": 1.0, "lam": 1.0, "mixer": "none"}),
    ),
    notes=("ID: TwoNN on the features of the known test images, class by class, mean over classes.",),
)
