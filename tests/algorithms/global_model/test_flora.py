import jax
import numpy as np
import pytest
import ranks

from pfljax.algorithms.global_model.flora import flora
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.types import Local

CONFORMANCE = [Case("flora", bytes=(toy.WHOLE, toy.WHOLE))]
LOCAL = Local(0.1, batch_size=4)


def test_stacked_products_are_added_to_the_kernels():
    tasks = ranks.tasks(train="*/kernel head/bias")
    methods = [flora(task, LOCAL) for task in tasks]
    first = methods[0].init(ranks.draw(tasks[0]), 4, jax.random.key(0))
    sent = {
        number: tree.split(upload, _sent(upload))[0]
        for number, upload in ranks.uploads(tasks).items()
    }
    server = methods[0].aggregate(first, sent, ranks.cohort(mask=(1, 1, 0, 1)))
    clients = ranks.by_client(sent)
    present = [0, 1, 3]
    weights = ranks.WEIGHTS[present]
    shares = dict(zip(present, weights / weights.sum(), strict=True))
    before, after = map(tree.paths, (first, server))
    assert before.keys() == after.keys() == {*ranks.PATHS, "head/bias"}
    for path in ranks.PATHS:
        a = np.hstack([clients[k][f"lora_a/{path}"] for k in present])
        b = np.vstack([shares[k] * clients[k][f"lora_b/{path}"] for k in present])
        wanted = before[path] + 2.0 * a @ b
        np.testing.assert_allclose(after[path], wanted, rtol=1e-4, atol=1e-5)
    bias = sum(shares[k] * clients[k]["head/bias"] for k in present)
    np.testing.assert_allclose(after["head/bias"], bias, rtol=1e-5)


def _sent(params):
    """True at all leaves but kernels of the model."""

    def is_sent(path, _):
        return path[0].key.startswith("lora") or path[-1].key == "bias"

    return jax.tree_util.tree_map_with_path(is_sent, params)


def test_each_round_and_client_begins_with_the_servers_model():
    (task,) = ranks.tasks(ranks=(2,), train="*/kernel")
    method = flora(task, LOCAL)
    w = method.init(ranks.draw(task), 4, jax.random.key(0))
    message = method.message(toy.turn(), w, ())
    kernels = tree.paths(task.complete(message))
    for path in ranks.PATHS:
        np.testing.assert_array_equal(kernels[path], tree.paths(w)[path])
    # A step can begin: A is not zero, and differs between turns.
    other = method.message(toy.turn(jax.random.key(5)), w, ())
    assert not np.array_equal(
        *(m["lora_a"]["head"]["kernel"] for m in (message, other))
    )


def test_frozen_kernels_are_refused():
    with pytest.raises(ValueError, match=r"but body/layers_1/kernel, head/kernel is f"):
        flora(ranks.tasks()[0], LOCAL)
