"""Wrong calls in Python: source, a word that the answer names, why it may be accepted.

The names of `namespace` stand in the sources: X and Y are good rows, A is their arrays,
F a federation of them, E an experiment, R the folder of a finished run.
"""

import os
from collections.abc import Iterator
from typing import Any

from abuse.values import Input

RUN = "ABUSE_RUN"  # the variable that names the folder of a finished run
ARRAYS = {
    "from_arrays(None, Y)": "x",
    "from_arrays('x', Y)": "x",
    "from_arrays([[1.0], [1.0, 2.0]], Y)": "x",
    "from_arrays(X[0], Y)": "x",
    "from_arrays(X * nan, Y)": "x",
    "from_arrays(X * inf, Y)": "x",
    "from_arrays(X.astype(float) * 1e300, Y)": "x",
    "from_arrays(np.full(X.shape, 2**40), Y)": "x",
    "from_arrays(np.full(X.shape, 2**31 + 5, np.uint32), Y)": "x",
    "from_arrays(X.astype(object), Y)": "x",
    "from_arrays(X.astype(complex), Y)": "x",
    "from_arrays(np.ma.masked_less(X, 0), Y)": "x",
    "from_arrays(X[:0], Y[:0])": "x",
    "from_arrays(X, None)": "y",
    "from_arrays(X, 'y')": "y",
    "from_arrays(X, Y[:-1])": "y",
    "from_arrays(X, Y - 1)": "label",
    "from_arrays(X, Y + 0.5)": "y",
    "from_arrays(X, Y.astype(str))": "y",
    "from_arrays(X, Y[:, None])": "y",
    "from_arrays(X, Y.astype(np.int64) + 2**33)": "y",
    "from_arrays(X, np.ma.masked_equal(Y, 0))": "y",
    "from_arrays(X, Y, client=Y[:-1])": "client",
    "from_arrays(X, Y, client='x')": "client",
    "from_arrays(X, Y, client=Y + 0.5)": "client",
    "from_arrays(X, Y, client=Y * nan)": "client",
    "from_arrays(X, Y, official=Y + 7)": "official",
    "from_arrays(X, Y, official='x')": "official",
    "from_arrays(X, Y, official=Y[:-1])": "official",
    "from_arrays(X, Y, num_classes=0)": "num_classes",
    "from_arrays(X, Y, num_classes=2)": "num_classes",
    "from_arrays(X, Y, num_classes=3.7)": "num_classes",
    "from_arrays(X, Y, num_classes=True)": "num_classes",
    "from_arrays(X, Y, num_classes='3')": "num_classes",
    "from_arrays(X, Y, num_classes=nan)": "num_classes",
    "from_arrays(X, Y, num_classes=2**34)": "num_classes",
    "from_arrays(X, Y, num_classes=[3])": "num_classes",
    "from_arrays(X, Y, scale='x')": "scale",
    "from_arrays(X, Y, scale=0)": "scale",
    "from_arrays(X, Y, scale=nan)": "scale",
    "from_arrays(X, Y, scale=1e-320)": "scale",
    "from_arrays(X, Y, scale=[1, 2])": "scale",
    "from_arrays(X, Y, shift='x')": "shift",
    "from_arrays(X, Y, shift=inf)": "shift",
    "from_arrays(X, Y, shift=1e308)": "shift",
    "from_arrays(X, Y, shift=[1, 2])": "shift",
    "from_arrays(X, Y, class_names=['a'])": "class_names",
    "from_arrays(X, Y, class_names=3)": "class_names",
}
FEDERATE = {
    "federate(None, 'iid', num_clients=3, seed=0)": "arrays",
    "federate((X, Y), 'iid', num_clients=3, seed=0)": "arrays",
    "federate(A, None, num_clients=3, seed=0)": "partition",
    "federate(A, [[0, 1], [2]], num_clients=2, seed=0)": "partition",
    "federate(A, 3, num_clients=3, seed=0)": "partition",
    "federate(A, 'iidd', num_clients=3, seed=0)": "partition",
    "federate(A, 'iid', num_clients=None, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=0, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=-1, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=2.5, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients='3', seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=True, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=nan, seed=0)": "num_clients",
    "federate(A, 'iid', num_clients=2**40, seed=0)": "clients",
    "federate(A, 'iid', num_clients=3, seed=-1)": "seed",
    "federate(A, 'iid', num_clients=3, seed=1.5)": "seed",
    "federate(A, 'iid', num_clients=3, seed='x')": "seed",
    "federate(A, 'iid', num_clients=3, seed=None)": "seed",
    "federate(A, 'iid', num_clients=3, seed=0, test='0.2')": "test",
    "federate(A, 'iid', num_clients=3, seed=0, test=None)": "test",
    "federate(A, 'iid', num_clients=3, seed=0, test=nan)": "test",
    "federate(A, 'iid', num_clients=3, seed=0, test=1.5)": "test",
    "federate(A, 'iid', num_clients=3, seed=0, validation=-1)": "validation",
    "federate(A, 'iid', num_clients=3, seed=0, stratified='x')": "stratified",
    "federate(A, 'iid', num_clients=3, seed=0, rows='x')": "rows",
    "federate(A, 'iid', num_clients=3, seed=0, test_from='x')": "test_from",
    "federate(A, 'iid', num_clients=3, seed=0, noise='x')": "noise",
    "federate(A, 'iid', num_clients=3, seed=0, public=2)": "public",
    "federate(A, 'iid', num_clients=3, seed=0, params=[1])": "params",
    "federate(A, 'iid', num_clients=3, seed=0, params={'x': 1})": "x",
    "federate(A, from_rows(['a', 'b']), num_clients=2, seed=0)": "row",
    "federate(A, from_rows([[0, 1.7], [3]]), num_clients=2, seed=0)": "row",
    "federate(A, from_rows([[[0], [1]]]), num_clients=1, seed=0)": "row",
    "federate(A, from_rows([[0, 1], [1, 2]]), num_clients=2, seed=0)": "row",
    "federate(A, from_rows([[0, 10**9], [2]]), num_clients=2, seed=0)": "row",
    "federate(A, Partition([0], [0], [1]), num_clients=1, seed=0)": "artition",
    "federate(A, by_client(np.full(120, 10**12)), num_clients=2, seed=0)": "client",
    "F.take(np.ones(6, bool))": "client",
    "F.take([99])": "client",
    "F.take([])": "client",
    "F.hold_out(nan, seed=0)": "fraction",
    "F.hold_out('x', seed=0)": "fraction",
}
RUNS = {
    "run(None)": "Experiment",
    "run('fedavg')": "Experiment",
    "run({'algorithm': 'fedavg'})": "Experiment",
    "run([E])": "Experiment",
    "run(E, A)": "federation",
    "run(E, (X, Y))": "federation",
    "run(E, 3)": "federation",
    "run(E, F, task='mlp')": "task",
    "run(E, F, task=3)": "task",
    "run(E.replace(algorithm=Choice('fedavg', {1: 2})))": "parameter",
    "run(E.replace(algorithm=Choice('fedavg', {None: 2})))": "parameter",
    "run(E.replace(algorithm=Choice('fedavg', [1])))": "options",
    "run(E.replace(hyper={'finetune': 1}))": "fedavg:finetune=1",
    "run(E.replace(nothing=1))": "nothing",
    "run(E.replace(steps=1099511627776, epochs=None))": "steps",
    "compare([], [0], 'out')": "experiments",
    "compare(None, [0], 'out')": "experiments",
    "compare(E, [0], 'out')": "experiments",
    "compare(['fedavg'], [0], 'out')": "Experiment",
    "compare([E], 0, 'out')": "seeds",
    "compare([E], [], 'out')": "seeds",
    "compare([E], ['x'], 'out')": "seed",
    "compare([E], [0, 0], 'out')": "seed",
    "compare([E, E], [0], 'out')": "label",
    "compare([E.replace(label='..')], [0], 'out')": "label",
    "compare([E], [0], 3)": "out",
    "compare([E], [0], None)": "out",
    "sweep(E, None)": "over",
    "sweep(E, 3)": "over",
    "sweep(E, {1: [2]})": "name",
    "sweep(E, {'lr': []})": "lr",
    "sweep(E, {'lr': 0.1})": "lr",
    "sweep(E, {'lr': 'x'})": "lr",
    "sweep(E, {'lr': (x for x in [0.1])})": "lr",
    "sweep(E, {'nothing': [1]})": "nothing",
    "sweep(E, {'lr': [nan]})": "lr",
    "sweep(E, {'lr': [0.1, 0.1]})": "lr",
    "sweep(E, {'lr': [{1: 2}]})": "lr",
    "sweep(None, {'lr': [0.1]})": "Experiment",
    "sweep(E, {'lr': [0.1]}, federation=3)": "federation",
    "sweep(E, {'lr': [0.1]}, federation=lambda seed: None)": "federation",
    "sweep(E, {'lr': [0.1]}, at_once=0)": "at_once",
    "sweep(E, {'lr': [0.1]}, lanes=0)": "lanes",
    "sweep(E, {'lr': [0.1]}, lanes='x')": "lanes",
    "task(None, (4,))": "module",
    "task('mlp', (4,))": "module",
    "task(nn.Dense(3), 4)": "input_shape",
    "task(nn.Dense(3), (-4,))": "input_shape",
    "task(nn.Dense(3), ('a',))": "input_shape",
    "task(nn.Dense(3), (2**40,))": "input_shape",
    "task_from_nnx(3, (4,))": "nnx",
    "personal_model('nowhere', 1)": "nowhere",
    "personal_model(None, 1)": "folder",
    "personal_model(R, 'a')": "client",
    "personal_model(R, 1.5)": "client",
    "personal_model(R, -1)": "client",
    "personal_model(R, 99)": "client",
    "personal_model(R, True)": "client",
    "server_model(3)": "folder",
}


def namespace() -> dict[str, Any]:
    """The names that stand in the sources."""
    import numpy as np
    from flax import linen as nn

    from pfljax import Experiment, data, federate, from_arrays, run, task
    from pfljax.models.nnx import task_from_nnx
    from pfljax.registry import Choice
    from pfljax.simulate.compare import compare
    from pfljax.simulate.export import personal_model, server_model
    from pfljax.sweep import sweep

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(120, 4)).astype(np.float32)
    labels = np.arange(120) % 3
    arrays = from_arrays(rows, labels)
    settings: Any = {"model": "logistic", "rounds": 1, "cohort": 2, "clients": 6}
    return {
        "np": np, "nn": nn, "nan": float("nan"), "inf": float("inf"),
        "X": rows, "Y": labels, "A": arrays, "R": os.environ.get(RUN),
        "F": federate(arrays, "iid", num_clients=6, seed=0),
        "E": Experiment(**settings, epochs=1),
        "Choice": Choice, "Experiment": Experiment, "Partition": data.Partition,
        "from_rows": data.from_rows, "by_client": data.by_client,
        "federate": federate, "from_arrays": from_arrays, "task": task,
        "task_from_nnx": task_from_nnx, "run": run, "compare": compare,
        "sweep": sweep, "personal_model": personal_model,
        "server_model": server_model,
    }  # fmt: skip


def table() -> Iterator[Input]:
    """All of them."""
    for source, name in (ARRAYS | FEDERATE | RUNS).items():
        yield Input(source, source=source, names=(name,))
