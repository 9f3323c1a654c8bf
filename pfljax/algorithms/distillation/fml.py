"""FML. Shen et al., 2020, https://arxiv.org/abs/2006.16765 (Algorithm 1).

    Server   v, the meme      Client  w_k, this client's own model
    Message  v                Upload  v_k, the meme after local training
Each step moves, on one batch and both from the values before it,
w_k by  alpha CE(w_k) + (1 - alpha) KL(p_v || p_w)  and
v_k by  beta CE(v_k) + (1 - beta) KL(p_w || p_v);
p are softmax outputs, of which the first in a KL is a constant. v is the uniform mean
of v_k. Client k is judged by w_k, also before it ever took part. The meme is
`task.proxy`, or a second model of the task, and begins from a key of its own. Running
statistics of v_k stay with client k.
"""

from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation
from pfljax.core.keys import derive
from pfljax.core.local_statistics import keep_of_proxy
from pfljax.core.losses import cross_entropy, divergence
from pfljax.core.training import fit, reporting
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Share, component


@component
def fml(
    task: Task,
    local: Local,
    *,
    alpha: Share = 0.5,
    beta: Share = 0.5,
) -> Algorithm:
    """Builds FML; `alpha` = 1 trains w_k alone, `beta` = 1 makes v uniform FedAvg's.

    Args:
      alpha: weight of a client's own loss beside the distance; 1 trains it alone.
      beta: the same of the shared model; 1 is FedAvg.
    """
    proxy = task.proxy or task

    def objective(pair, batch, key):
        w, v = pair
        own = task.logits(w, batch, key)
        meme = proxy.logits(v, batch, derive(key, "meme"))
        loss = cross_entropy(own, batch)
        taught = divergence(meme, own, batch)
        teaching = divergence(own, meme, batch)
        loss_w = alpha * loss + (1 - alpha) * taught
        loss_v = beta * cross_entropy(meme, batch) + (1 - beta) * teaching
        return loss_w + loss_v, loss

    def train(turn, v, w, data):
        # One optimizer of both: their steps are simultaneous.
        slope_of = reporting(objective)
        (w, v), metrics = fit(task.loss, (w, v), data, turn, local, slope_of)
        return w, v, metrics

    method = alone(task, local)._replace(
        init=lambda params, num_clients, key: proxy.init(key),
        message=lambda turn, v, w: v,
        train=train,
        aggregate=aggregation.averaging("uniform"),
    )
    return keep_of_proxy(method, proxy)
