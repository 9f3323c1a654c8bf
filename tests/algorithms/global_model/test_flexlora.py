import numpy as np
import ranks

from pfljax.algorithms.global_model.flexlora import flexlora
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.types import Local

CONFORMANCE = [Case("flexlora", bytes=(toy.WHOLE, toy.WHOLE))]
LOCAL = Local(0.1, batch_size=4)


def mean(clients, present, value):
    shares = ranks.WEIGHTS[present] / ranks.WEIGHTS[present].sum()
    return sum(s * value(clients[k]) for s, k in zip(shares, present, strict=True))


def test_clients_get_the_nearest_product_of_their_rank():
    tasks = ranks.tasks()
    methods = [flexlora(task, LOCAL) for task in tasks]
    sent = ranks.uploads(tasks)
    clients = ranks.by_client(sent)
    server = methods[0].aggregate(ranks.draw(tasks[1]), sent, ranks.cohort())
    bias = mean(clients, [0, 1, 2, 3], lambda client: client["head/bias"])
    np.testing.assert_allclose(server["head"]["bias"], bias, rtol=1e-5)
    for method, rank in zip(methods, ranks.RANKS, strict=True):
        message = tree.paths(method.message(None, server, ()))
        for path in ranks.PATHS:
            wanted = mean(clients, [0, 1, 2, 3], lambda c, p=path: ranks.product(c, p))
            u, s, vt = np.linalg.svd(wanted)
            nearest = u[:, :rank] * s[:rank] @ vt[:rank]
            found = ranks.product(message, path)
            np.testing.assert_allclose(found, nearest, rtol=1e-4, atol=1e-5)


def test_nothing_is_lost_where_ranks_sum_to_the_largest():
    tasks = ranks.tasks()
    method = flexlora(tasks[0], LOCAL)
    sent = ranks.uploads(tasks)
    some = ranks.cohort(mask=(1, 0, 1, 0))  # of ranks 1 and 2
    server = tree.paths(method.aggregate(ranks.draw(tasks[1]), sent, some))
    clients = ranks.by_client(sent)
    for path in ranks.PATHS:
        wanted = mean(clients, [0, 2], lambda c, p=path: ranks.product(c, p))
        found = ranks.product(server, path)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
