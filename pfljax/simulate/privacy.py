"""The epsilon of a run whose channel adds noise at the server.

It is computed by the accountant of Renyi differential privacy in Google's dp-accounting
(`pip install pfljax[privacy]`). Privacy is that of clients: neighbouring federations
differ in one client.
"""

import importlib
from typing import Any

from pfljax.channel.names import CHANNELS, PRIVATE
from pfljax.core import factories
from pfljax.core.communication import in_a_round
from pfljax.core.components import Component
from pfljax.engine import Setting
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import say

# The cohorts of this selection are close to those of Poisson sampling, for which the
# sampled share amplifies privacy. No amplification is claimed for other selections.
SAMPLED = "uniform"
# Their cohorts have a fixed size, and depend on no client's examples.
SELECTIONS = (SAMPLED, "round_robin")
ORDERS = range(2, 257)  # of the Renyi divergences


def privacy_summary(
    setting: Setting, experiment: Experiment, num_clients: int
) -> dict[str, dict[str, Any]]:
    """The entry on privacy in summary.json; {} for a run without such a channel."""
    mechanism = find_mechanism(experiment.channel)
    if mechanism is None:
        return {}
    multiplier, delta = mechanism
    share = 1.0
    if experiment.selection.name == SAMPLED:
        share = setting.selection.cohort / num_clients
    rounds = experiment.rounds
    # Each exchange of a round has noise of its own, and tells of the same clients.
    exchanges = len(in_a_round(setting.algorithm))
    bound = epsilon(multiplier, delta, share, rounds * exchanges)
    if bound is None:
        say(
            "pfljax: epsilon is not computed, since dp-accounting is not installed; "
            "run pip install 'pfljax[privacy]'"
        )
    return {
        "privacy": {
            "epsilon": bound,
            "delta": delta,
            "multiplier": multiplier,
            "sampled": share,
            "rounds": rounds,
        }
    }


def find_mechanism(channels: tuple[Component, ...]) -> tuple[float, float] | None:
    """(noise multiplier, delta) of the channel with noise at the server, if any."""
    for choice in channels:
        if choice.name not in PRIVATE:
            continue
        options = factories.defaults(CHANNELS[choice.name]) | choice.options
        if options.get("multiplier"):
            return float(options["multiplier"]), float(options["delta"])
    return None


def epsilon(multiplier: float, delta: float, share: float, rounds: int) -> float | None:
    """Epsilon at this delta after so many rounds; None without dp-accounting."""
    try:
        dp_accounting = importlib.import_module("dp_accounting")
    except ImportError:
        return None
    noise = dp_accounting.GaussianDpEvent(multiplier)
    if share < 1:
        noise = dp_accounting.PoissonSampledDpEvent(share, noise)
    # Whole orders only, since the series may not converge for others.
    accountant = dp_accounting.rdp.RdpAccountant(orders=ORDERS)
    accountant.compose(noise, rounds)
    return float(accountant.get_epsilon(delta))
