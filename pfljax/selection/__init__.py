"""Who takes part in a round, and with how much work: a file a scheme."""

from collections.abc import Callable

from pfljax.selection.base import Selection as Selection
from pfljax.selection.base import first as first
from pfljax.selection.base import learns as learns
from pfljax.selection.by_size import by_size as by_size
from pfljax.selection.stragglers import stragglers as stragglers
from pfljax.selection.uniform import uniform as uniform

# Who takes part, by name. A factory takes the size of a cohort, then by name what it
# goes by of the clients: `num_clients`, their `sizes`.
SELECTIONS: dict[str, Callable[..., Selection]] = {
    "uniform": uniform,
    "by_size": by_size,
}
