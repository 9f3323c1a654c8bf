"""The work of `pfljax run` and `pfljax resume`."""

from pathlib import Path
from typing import Any

from pfljax.evaluation.over_clients import headline
from pfljax.runs import claims, folder
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, processes
from pfljax.runtime.terminal import show


def run(
    experiment: Experiment, address: dict[str, Any] | None, resumes: bool = False
) -> None:
    """Runs the experiment, or says that it is finished.

    Args:
      experiment: the resolved settings.
      address: of `processes.connect`; None for a single process.
      resumes: takes the devices of this machine if it has fewer than the run had.
    """
    # Processes join before anything asks JAX for its devices: it starts only once.
    if address is not None:
        processes.connect(**address)
    path = Path(experiment.folder)
    page = path / "report.html"
    if resumes:
        available = devices.at_hand(experiment.devices)
        experiment = experiment.replace(devices=available)
    if processes.ask(_is_finished, path, experiment):
        _print(f"{path} is finished; see {page}")
        return
    devices.use_compile_cache()
    # Imported only now: a finished run is answered without the engine.
    from pfljax.simulate.run import run as simulate

    result = simulate(experiment)
    test = result.personal.test
    lead = headline(test.figures, experiment.monitor)
    _print(
        f"{experiment.algorithm.short_name}: mean test {lead} of the clients' models "
        f"{getattr(test, lead):.4f}, round {result.rounds}"
    )
    privacy = result.summary.get("privacy") or {}
    if privacy.get("epsilon") is not None:
        _print(
            f"private at epsilon {privacy['epsilon']:.4g}, delta {privacy['delta']:g}: "
            f"{privacy['rounds']} rounds that sample {privacy['sampled']:.3g} of the "
            "clients"
        )
    _print(str(page))


def _is_finished(path: Path, experiment: Experiment) -> bool:
    """Whether nothing is left to do in the folder of this experiment."""
    claims.check_python(path)
    if not folder.is_finished(path):
        return False
    claims.claim(path, experiment)
    return folder.complete(path, experiment)


def _print(line: str) -> None:
    """Prints one line, in process 0 only."""
    if processes.first():
        show(line)
