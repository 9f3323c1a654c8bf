"""APFL. Deng, Kamani, Mahdavi, 2020, https://arxiv.org/abs/2003.13461 (Algorithm 1).

    Server   w                Client  v_k, alpha_k
    Message  w                Upload  w_k, the federated params after local training
With m = alpha v + (1 - alpha) w, each step moves, all from the values before it,
w by grad f(w),  v by alpha grad f(m),  alpha by <grad f(m), v - w>, clipped to [0, 1];
w is FedAvg's of the same weighting. Client k is judged by m with the newest w, or by w
before it ever took part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.optimizers import beside
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task

FORMS = ("paper", "fedjax", "superfed-code")


class Mixed(NamedTuple):
    """What a client keeps."""

    v: Any
    alpha: Any  # f32[]; a tree of them, one a tensor, as in fedjax


def apfl(
    task: Task,
    local: Local,
    *,
    alpha: float = 0.5,
    adaptive: bool = True,
    as_in: str = "paper",
    weighting: str = "uniform",
    judge_untrained: bool = False,
) -> Algorithm:
    """Builds APFL from `alpha`, which is learned if `adaptive`.

    Fixed, `alpha` = 0 is FedAvg of that weighting and 1 local training (not fedjax's).

    as_in="fedjax" has an alpha a tensor, moves v by grad f(m) without the factor alpha,
    and starts v at the w of the client's first round (there alpha has the momentum of
    v, too; here it has none). "superfed-code" mixes with the w that the round began
    with (its numbers: alpha=0.25, adaptive=False; there w has no weight decay, here
    that of `local`), and with `judge_untrained` who never took part is judged by a
    mixture with a v that was never trained. Both of those codes weigh by rows: give
    weighting="rows". The authors' own code is `apfl_fedtorch`.
    """
    if as_in not in FORMS:
        raise ValueError(f"as_in is {as_in!r}; known: {', '.join(FORMS)}")
    if judge_untrained and as_in == "fedjax":
        raise ValueError("judge_untrained: fedjax's v is w until it is trained")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; expected 0 <= alpha <= 1")
    weights = aggregation.weighting(weighting)

    def first(params, client_id, key):
        share = jnp.float32(alpha)
        shares = jax.tree.map(lambda _: share, params) if as_in == "fedjax" else share
        return Mixed(params, shares)

    mixture = fedavg(task, local)._replace(
        init_client=first,
        train=trained(task, local, adaptive, as_in),
        aggregate=lambda w, uploads, cohort: aggregation.mean(uploads, weights(cohort)),
        personal=lambda turn, w, own, data: tree.lerp(w, own.v, own.alpha),
        newcomer=None if judge_untrained else lambda turn, w, data: w,
        endpoints=lambda w, own: (w, own.v),
    )
    return starting_at_w(mixture) if as_in == "fedjax" else mixture


def starting_at_w(method: Algorithm) -> Algorithm:
    """The method, whose clients begin with v = w in the round that they first train."""
    judged_by = method.personal
    ends_of = method.endpoints
    assert judged_by
    assert ends_of

    def train(turn, w, client, data):
        own, begun = client
        own = own._replace(v=tree.where(begun, own.v, w))
        own, upload, metrics = method.train(turn, w, own, data)
        return (own, jnp.bool_(True)), upload, metrics

    return method._replace(
        init_client=lambda *args: (method.init_client(*args), jnp.bool_(False)),
        train=train,
        personal=lambda turn, w, client, data: judged_by(turn, w, client[0], data),
        endpoints=lambda w, client: ends_of(w, client[0]),
    )


def trained(task: Task, local: Local, adaptive: bool, as_in: str) -> Any:
    """The `train` of all forms that mix parameters; slope_x is what x follows."""
    slope_of = jax.value_and_grad(task.loss)
    a_tensor, stale = as_in == "fedjax", as_in == "superfed-code"

    def train(turn, received, own, data):
        def gradient(params, batch, key):
            now, v, share = params
            value, slope_w = slope_of(now, batch, key)
            base = received if stale else now
            _, slope_m = slope_of(tree.lerp(base, v, share), batch, key)
            slope_v = slope_m if a_tensor else tree.scale(slope_m, share)
            apart = tree.sub(v, base)
            slope_alpha = (
                products(slope_m, apart) if a_tensor else tree.dot(slope_m, apart)
            )
            return value, (slope_w, slope_v, tree.scale(slope_alpha, float(adaptive)))

        start, labels = (received, *own), ("model", "model", "other")  # w, v, alpha
        stepped = beside(local, labels, within_one)
        found, metrics = fit(task.loss, start, data, turn, stepped, gradient)
        w, v, share = found
        return Mixed(v, share), w, metrics

    return train


def products(a: Any, b: Any) -> Any:
    """The inner product of each tensor of two trees."""
    return jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)


def within_one(rate: Any) -> optax.GradientTransformation:
    """Gradient descent of numbers that stay within [0, 1]."""

    def clip(updates, params):
        return jax.tree.map(lambda u, p: jnp.clip(p + u, 0, 1) - p, updates, params)

    return optax.chain(optax.sgd(rate), optax.stateless(clip))
