"""Seeds one after another, each on all devices, beside seeds at once, one a device.

    python experiments/speed/at_once.py

Prints the seconds of ten rounds of two seeds of FedAvg, medians of three in turn. What
is compiled and written is left out; `compare` chooses by `simulate.at_once.groups`. On
two quiet cores (AMD EPYC):

| | in turn | at once | gain |
|---|---|---|---|
| digits, MLP, cohort of 5 | 0.024 | 0.014 | 1.68 |
| 784 numbers, TwoNN, cohort of 10 | 1.973 | 1.413 | 1.40 |
| 32x32x3, TwoCNN, cohort of 5 | 21.982 | 17.712 | 1.24 |
"""

import time
from typing import NamedTuple

import jax
import numpy as np
import tyro

from pfljax import Experiment, data
from pfljax.engine import several
from pfljax.runs.checks import resolve
from pfljax.runtime import devices
from pfljax.simulate import simulation
from pfljax.simulate.federation import build_federation

SMALL = Experiment(
    dataset="digits",
    clients=20,
    cohort=5,
    rounds=20,
    epochs=2,
    batch_size=10,
    lr=0.05,
    eval_every=10,
)
CASES = {
    "digits, MLP, cohort of 5": SMALL,
    "784 numbers, TwoNN, cohort of 10": SMALL.replace(
        dataset="random", model="twonn", clients=100, cohort=10, epochs=5
    ),
    "32x32x3, TwoCNN, cohort of 5": SMALL.replace(
        dataset="random", model="twocnn", clients=20, epochs=1
    ),
}
SHAPES = {"twonn": (784,), "twocnn": (32, 32, 3)}
ROWS = 240  # of a client of random numbers


class Seconds(NamedTuple):
    """Of as many rounds of all seeds."""

    in_turn: float
    at_once: float


def main(seeds: int = 2, rounds: int = 10, repeats: int = 3) -> None:
    """Prints a table: medians over `repeats` timed calls of each."""
    devices.prepare()
    print("| | in turn | at once | gain |\n|---|---|---|---|")
    for name, experiment in CASES.items():
        timed = measure(resolve(experiment), seeds, rounds, repeats)
        in_turn, at_once = np.median(timed, axis=0)
        print(f"| {name} | {in_turn:.3f} | {at_once:.3f} | {in_turn / at_once:.2f} |")


def measure(
    experiment: Experiment, seeds: int, rounds: int, repeats: int
) -> list[Seconds]:
    """Both forms, in turn, after a first call of each."""
    federations = [clients(experiment, seed) for seed in range(seeds)]
    sim = simulation.simulation(experiment, federations[0])
    placed = [simulation.placed(sim, federation).train for federation in federations]
    rows = several.place(sim.setting, [(train, None) for train in placed])
    program = several.compile_several(
        sim.setting, sim.longest, simulation.abstract(sim), rows, seeds
    )
    counts = np.full(seeds, rounds, np.int32)

    def first() -> list:
        return [sim.init(jax.random.key(seed)) for seed in range(seeds)]

    def in_turn(states: list) -> list:
        pairs = zip(states, placed, strict=True)
        return [sim.rounds(state, train, rounds)[0] for state, train in pairs]

    def at_once(states: list) -> list:
        after, _ = program(tuple(states), rows, counts)
        return list(after)

    forms = {in_turn: in_turn(first()), at_once: at_once(first())}
    timed = []
    for _ in range(repeats):
        taken = []
        for form, states in forms.items():
            jax.block_until_ready(states)
            started = time.perf_counter()
            forms[form] = jax.block_until_ready(form(states))
            taken.append(time.perf_counter() - started)
        timed.append(Seconds(*taken))
    return timed


def clients(experiment: Experiment, seed: int) -> data.Federation:
    """The clients of this seed: the digits, or rows of random numbers."""
    shape = SHAPES.get(experiment.method.model.name)
    if shape is None:
        federation, _ = build_federation(experiment.replace(seed=seed), None)
        return federation
    count = experiment.data.clients
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((count * ROWS, *shape), np.float32)
    client = np.repeat(np.arange(count), ROWS)
    arrays = data.from_arrays(x, draw.integers(0, 10, len(x)), client=client)
    return data.federate(arrays, "natural", num_clients=None, seed=seed)


if __name__ == "__main__":
    tyro.cli(main)
