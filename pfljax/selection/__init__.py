"""Selections of the clients of a round, and of their work: one file for each."""

from collections.abc import Callable

from pfljax.selection.availability import availability as availability
from pfljax.selection.base import Selection as Selection
from pfljax.selection.base import first as first
from pfljax.selection.base import learns as learns
from pfljax.selection.bernoulli import bernoulli as bernoulli
from pfljax.selection.by_size import by_size as by_size
from pfljax.selection.cmab import cmab as cmab
from pfljax.selection.favor import favor as favor
from pfljax.selection.fedsae import fedsae as fedsae
from pfljax.selection.oort import oort as oort
from pfljax.selection.power_of_choice import power_of_choice as power_of_choice
from pfljax.selection.round_robin import round_robin as round_robin
from pfljax.selection.stragglers import stragglers as stragglers
from pfljax.selection.tifl import tifl as tifl
from pfljax.selection.uniform import uniform as uniform

# A factory takes the size of a cohort, then by name what it needs: `num_clients`; of
# each client the number of its examples (`sizes`), its expected `seconds` of a round,
# its `least_label`, `greatest_label` and `label_count`; of the run its `rounds`,
# `epochs` and `task`; and the number of examples of the server (`num_public`).
SELECTIONS: dict[str, Callable[..., Selection]] = {
    "uniform": uniform,
    "by_size": by_size,
    "round_robin": round_robin,
    "bernoulli": bernoulli,
    "availability": availability,
    "power_of_choice": power_of_choice,
    "tifl": tifl,
    "fedsae": fedsae,
    "oort": oort,
    "cmab": cmab,
    "favor": favor,
}
