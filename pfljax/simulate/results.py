"""Writes the results of a run: its log, metrics of each client, and the summary."""

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.types import Metrics, RunState
from pfljax.engine.offload import Population
from pfljax.evaluation.over_clients import headline, is_greater_better
from pfljax.runs import folder, log
from pfljax.runs.log import Line
from pfljax.runs.result import read_line
from pfljax.runtime import memory
from pfljax.runtime.processes import ask, say
from pfljax.simulate import evaluation, malicious, privacy, size
from pfljax.simulate.begin import Run

# Arrays of clients.npz without an axis of evaluations; those of mixtures have none.
FACTS = ("train_size", "test_size", "participations", "malicious")
COUNTS = ("asked", "reported")  # of clients; they are in the line as bytes
MOST_ROUNDS = 20  # the first rounds, whose turns are in the log for a figure
MOST_TURNS = 200  # in the log of a round
SECONDS = "seconds"  # virtual ones of a round, where the run has a clock


class Progress(NamedTuple):
    """The progress of a run between two calls of the compiled rounds."""

    state: RunState
    done: int  # rounds
    last: Line  # of its log; {} before the first round
    log: int  # checksum of the log
    pace: float = 0.0  # seconds a round in the last call; 0 before the first
    unsaved: float = 0.0  # seconds of training that no checkpoint holds
    seconds: float = 0.0  # of training, in all
    stopped: Line | None = None  # the reason, if the run stops here
    terminated: bool = False  # whether the run ends here, to be resumed


class Rounds(NamedTuple):
    """The content for the files of one call of the compiled rounds."""

    lines: list[Line]  # of the log, one for each round
    by_client: dict[str, np.ndarray]  # metrics [C] by name; {} without an evaluation


def log_lines(run: Run, metrics: Metrics, before: Progress) -> list[Line]:
    """The log of the rounds with these metrics; bytes are summed since the first round.

    Each metric of the method's training is there as "train_NAME".
    """
    traffic = run.sim.traffic()
    last = before.last
    names = [name for name in sorted(metrics) if name not in (*COUNTS, SECONDS)]
    total_down = last.get("bytes_down", 0)
    total_up = last.get("bytes_up", 0)
    # Summed in Python: in float32 the clock of a long run would stop.
    clock = last.get("clock", 0.0)
    lines = []
    for i in range(len(metrics["asked"])):
        # Counts are small integers of the device; bytes are summed in Python, where
        # they do not overflow.
        total_down += int(metrics["asked"][i]) * traffic.down
        total_up += int(metrics["reported"][i]) * traffic.up
        round_ = before.done + 1 + i
        line: Line = {"round": round_}
        for name in names:
            # A line has only scalars.
            if metrics[name].ndim == 1:
                line[f"train_{name}"] = folder.number(metrics[name][i])
        line |= {"bytes_down": total_down, "bytes_up": total_up}
        if SECONDS in metrics:
            line |= _virtual_time(metrics, i, round_, clock)
            clock = line["clock"]
        lines.append(line)
    return lines


def _virtual_time(
    metrics: Metrics, index: int, round_: int, clock: float
) -> dict[str, Any]:
    """The virtual time in a line of the log; `clock` is that of the last round."""
    seconds = float(metrics["seconds"][index])
    line: Line = {"seconds": seconds, "clock": clock + seconds}
    if round_ <= MOST_ROUNDS:
        line["turns"] = _turns(metrics, index, clock)
    return line


def _turns(metrics: Metrics, index: int, clock: float) -> list[list[Any]]:
    """[client, start, end, whether it reported] of each turn of the round.

    By client, so that the layout on devices does not show.
    """
    turns = []
    columns = [
        np.asarray(metrics[f"turn_{name}"][index])
        for name in ("client", "seconds", "reported")
    ]
    # Asynchronous rounds say when a turn began; others begin with their round.
    starts = metrics.get("turn_start")
    for i in np.argsort(columns[0], kind="stable"):
        client, seconds, reported = (column[i] for column in columns)
        if seconds > 0:
            start = clock if starts is None else float(starts[index][i])
            end = start + float(seconds)
            turns.append([int(client), start, end, bool(reported)])
    return turns[:MOST_TURNS]


def evaluate(run: Run, population: Population, state: RunState) -> Line:
    """Evaluates the state; returns its part of the log, and extends `run.history`."""
    states = partial(population.states, state)
    records, by_client = evaluation.evaluate(
        run.sim, run.federation, run.unseen, state, states
    )
    for name, values in by_client.items():
        run.history.setdefault(name, []).append(values)
    line: Line = {"evaluations": records}
    if run.sim.dissimilarity is not None:
        measured = run.sim.dissimilarity(state.server, run.federation.train)
        values = measured._asdict()
        line["dissimilarity"] = {
            name: folder.number(value) for name, value in values.items()
        }
    return line


def append(run: Run, rounds: Rounds) -> None:
    """Appends these rounds to the log, and writes their evaluation."""
    last = rounds.lines[-1]["round"]
    if rounds.by_client:
        ask(folder.write_evaluation, run.path, last, rounds.by_client)
    # Written before the checkpoint: a resumed run removes lines without a checkpoint,
    # but cannot use a checkpoint without its lines.
    ask(log.append, run.path / "metrics.jsonl", rounds.lines)


def arrays(run: Run, state: RunState) -> dict[str, Any]:
    """The content of clients.npz: metrics [C] by evaluation, and facts of clients."""
    facts = {
        "train_size": np.asarray(run.federation.train.size),
        "test_size": np.asarray(run.federation.test.size),
        "participations": np.asarray(state.participations),
    }
    channel = run.sim.setting.channel
    is_malicious = malicious.which(channel, run.federation, state.key)
    if is_malicious is not None:
        facts["malicious"] = is_malicious
    return run.history | facts


def write_clients(
    run: Run, population: Population, state: RunState
) -> tuple[dict[str, Any], Any]:
    """Writes clients.npz, including the path between endpoints.

    Returns its arrays, and the figures of the path or None.
    """
    values = arrays(run, state)
    mixture = None
    if run.sim.setting.algorithm.endpoints is not None:
        states = partial(population.states, state)
        mixture, paths = evaluation.evaluate_mixture(
            run.sim, run.federation, state, states
        )
        values |= paths
    ask(folder.write_arrays, run.path / "clients.npz", values)
    ask(shutil.rmtree, run.path / folder.EVALUATIONS, True)
    return values, mixture


def write_summary(
    run: Run,
    arrays: dict[str, Any],
    mixture: Any,
    lines: list[Line],
    progress: Progress,
) -> None:
    """Writes the summary after the last checkpoint is complete."""
    stopped = progress.stopped
    is_classes = run.federation.kind == "classes"
    guess = math.log(run.federation.num_classes) if is_classes else None
    reason = _explain_divergence(lines, guess, run.sim.traffic().up)
    summary = _summary(run, arrays, mixture, lines)
    if stopped is not None:
        summary["stopped"] = stopped
        where = f"{run.path} stopped after round {stopped['round']}"
        say(f"pfljax: {where} by {stopped['by']}")
    if reason:
        summary["diverged"] = reason
    ask(_write_cost, run.path, progress.seconds)
    # The summary marks the run as complete, so it is written last.
    ask(folder.write_json, run.path / "summary.json", summary)
    if reason:
        say(
            f"pfljax: warning: {run.path} has diverged: {reason}; choose smaller "
            "rates, or less noise"
        )


def _write_cost(path: Path, seconds: float) -> None:
    """Adds the seconds of training and the most memory to environment.json."""
    environment = folder.read_json(path / "environment.json")
    environment |= {"seconds": seconds, **memory.highest()}
    folder.write_json(path / "environment.json", environment)


def _summary(
    run: Run, arrays: dict[str, Any], mixture: Any, lines: list[Line]
) -> dict[str, Any]:
    # A run that was stopped has fewer rounds.
    experiment = run.experiment.replace(rounds=lines[-1]["round"])
    traffic = run.sim.traffic()
    bytes_sent = {
        "down_per_client": traffic.down,
        "up_per_client": traffic.up,
        "down_total": lines[-1]["bytes_down"],
        "up_total": lines[-1]["bytes_up"],
    }
    num_clients = run.federation.num_clients
    trained, whole = size.mean_parameters(run.sim, num_clients)
    return {
        "label": experiment.label,
        "algorithm": experiment.algorithm.name,
        "seed": experiment.seed,
        "rounds": experiment.rounds,
        **_evaluations(lines, arrays, experiment.monitor),
        "mixture": mixture,
        "traffic": bytes_sent,
        "parameters": {"trained": trained, "model": whole},
        "step_flops": run.sim.step_flops(),
        **privacy.privacy_summary(run.sim.setting, experiment, num_clients),
    }


def _evaluations(
    lines: list[Line], arrays: dict[str, Any], monitor: str
) -> dict[str, Any]:
    """The last evaluation, and the best ones on validation and on test examples."""
    evaluated = [line for line in lines if "evaluations" in line]
    chosen = None
    goodness = evaluation.on_validation(arrays, monitor)
    if goodness is not None:
        chosen = _parse_line(evaluated[int(np.argmax(goodness))])
    lead, _ = lead_metric(evaluated[-1], monitor)
    on_test = np.array([lead_metric(line, monitor)[1] for line in evaluated])
    goodness = on_test if is_greater_better(lead) else -on_test
    best = int(np.argmax(np.where(np.isfinite(goodness), goodness, -np.inf)))
    return {
        "last": _parse_line(evaluated[-1]),
        "chosen_on_validation": chosen,
        "best_on_test": {
            "round": evaluated[best]["round"],
            lead: folder.number(on_test[best]),
        },
    }


def _parse_line(line: Line) -> Line:
    """The round of a line of the log, its evaluations, and its dissimilarity."""
    names = ("round", "evaluations", "dissimilarity")
    return {name: line[name] for name in names if name in line}


def lead_metric(line: Line, monitor: str) -> tuple[str, float]:
    """The metric that leads, and its mean over all clients' models on test examples."""
    test = read_line(line).personal.test
    name = headline(test.figures, monitor)
    return name, getattr(test, name)


def _explain_divergence(lines: list[Line], guess: float | None, up: int = 0) -> str:
    """The reason to say that the run has diverged; "" if it has not.

    The last training loss is compared with `guess`, which is ln K for K classes and
    None for other tasks, and with that of the first round. Either alone would give
    false warnings: for a cohort that is hard to learn, or for an untrained model that
    begins a little above ln K. `up` is the number of bytes of an upload.
    """
    last = lines[-1]
    before = lines[-2]["bytes_up"] if len(lines) > 1 else 0
    # A round in which no client reported has no training loss.
    silent = up > 0 and last["bytes_up"] == before
    losses = [] if silent else [last["train_loss"]]
    for record in last["evaluations"]:
        if record["split"] == "test" and record["clients"] == "all":
            losses.append(record["metrics"]["loss"]["mean"])
    if None in losses:  # JSON has no NaN: `folder.number` wrote None
        return "losses of its last round are not finite"
    if silent:
        return ""
    loss = last["train_loss"]
    # In the first round None stands for an infinite loss.
    first = lines[0]["train_loss"] or math.inf
    # A guess of a target that is no class has no known loss.
    level = 0.0 if guess is None else guess
    has_risen = loss > level and loss > 2 * first
    if (guess and loss > 2 * guess) or has_risen:
        of_guess = f", and {guess:.4g} for a guess" if guess else ""
        return (
            f"its training loss is {loss:.4g} in the last round, {first:.4g} in the "
            f"first{of_guess}"
        )
    return ""
