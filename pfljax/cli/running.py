"""What `pfljax run` and `pfljax resume` do with an experiment."""

from pathlib import Path
from typing import Any

from pfljax.cli.options import Processes
from pfljax.runs import claims, folder
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices, processes


def address(given: Processes) -> dict[str, Any] | None:
    """The arguments of `processes.connect`; None for a process that is alone.

    Raises:
      ValueError: the address of the processes is half given, or none.
    """
    return processes.address(**vars(given))


def run(
    experiment: Experiment, address: dict[str, Any] | None, begun: bool = False
) -> None:
    """Runs it, or says that it is finished; `begun` maybe on other devices."""
    # Processes join before anything asks JAX for its devices: it starts but once.
    if address is not None:
        processes.connect(**address)
    path = Path(experiment.folder)
    page = path / "report.html"
    if begun:
        here = devices.at_hand(experiment.devices)
        experiment = experiment.replace(devices=here)
    if processes.ask(_is_finished, path, experiment):
        _print(f"{path} is finished; see {page}")
        return
    devices.use_compile_cache()
    # Here alone: a finished run is answered without the engine.
    from pfljax.simulate.run import run as run_rounds

    result = run_rounds(experiment)
    accuracy = result.personal.test.accuracy
    _print(
        f"{experiment.algorithm.name}: accuracy {accuracy:.4f} on test rows, mean "
        "over clients, each by the model it uses, "
        f"round {result.rounds}; see {page}"
    )
    privacy = result.summary.get("privacy") or {}
    if privacy.get("epsilon") is not None:
        _print(
            f"private at epsilon {privacy['epsilon']:.4g}, delta {privacy['delta']:g}: "
            f"{privacy['rounds']} rounds that ask {privacy['sampled']:.3g} of clients"
        )


def _is_finished(path: Path, experiment: Experiment) -> bool:
    """Whether nothing is left to do in the folder of this experiment."""
    claims.check_python(path)
    if not folder.is_finished(path):
        return False
    claims.claim(path, experiment)
    counted = folder.read_config(path).baseline
    same = counted == experiment.baseline
    return same and folder.complete(path, experiment)


def _print(line: str) -> None:
    """One line on stdout, of process 0 if there are several."""
    if processes.first():
        print(line)
