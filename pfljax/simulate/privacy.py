"""The epsilon of a run whose channel adds noise at the server.

By the accountant of Renyi differential privacy of dp-accounting, which is Google's and
installed by `pip install pfljax[privacy]`. Client-level: neighbouring federations
differ in one client.
"""

import importlib
from typing import Any

from pfljax import registry
from pfljax.channel import CHANNELS
from pfljax.engine import Setting
from pfljax.registry import Component
from pfljax.runs.settings import Experiment
from pfljax.runtime.processes import say

# Its cohorts are close to those of Poisson sampling, for which privacy is amplified by
# the share that is drawn. Of others no amplification is claimed.
SAMPLED = "uniform"
ORDERS = range(2, 257)  # of Renyi divergences


def privacy_summary(
    setting: Setting, experiment: Experiment, num_clients: int
) -> dict[str, dict[str, Any]]:
    """What summary.json says of the privacy of a run; {} of a run without."""
    mechanism = find_mechanism(experiment.channel)
    if mechanism is None:
        return {}
    multiplier, delta = mechanism
    share = 1.0
    if experiment.selection.name == SAMPLED:
        share = setting.selection.cohort / num_clients
    rounds = experiment.rounds
    bound = epsilon(multiplier, delta, share, rounds)
    if bound is None:
        say(
            "pfljax: epsilon is not counted: install dp-accounting, as by "
            "pip install 'pfljax[privacy]'"
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
        options = registry.defaults(CHANNELS[choice.name]) | choice.options
        # Of the channels, those alone tell a multiplier.
        if options.get("multiplier"):
            return float(options["multiplier"]), float(options["delta"])
    return None


def epsilon(multiplier: float, delta: float, share: float, rounds: int) -> float | None:
    """Epsilon at this delta of so many rounds; None without dp-accounting."""
    try:
        dp_accounting = importlib.import_module("dp_accounting")
    except ImportError:
        return None
    noise = dp_accounting.GaussianDpEvent(multiplier)
    if share < 1:
        noise = dp_accounting.PoissonSampledDpEvent(share, noise)
    # Whole orders alone: of others the series may not converge, which it would say.
    accountant = dp_accounting.rdp.RdpAccountant(orders=ORDERS)
    accountant.compose(noise, rounds)
    return float(accountant.get_epsilon(delta))
