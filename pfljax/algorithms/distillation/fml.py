"""FML: clients learn mutually with a copy of a small shared model, the meme.

Shen et al., 2020, https://arxiv.org/abs/2006.16765 (Algorithm 1).

    Server   v, the meme      Client  w_k, the model of this client
    Message  v                Upload  v_k, the meme after local training

Each step, on one batch and both from the values before it, moves
w_k by  alpha CE(w_k) + (1 - alpha) KL(p_v || p_w)  and
v_k by  beta CE(v_k) + (1 - beta) KL(p_w || p_v),
where p are softmax outputs and the first p of a KL is constant. v is the uniform mean
of the v_k. Client k is evaluated with w_k, even before it first takes part. The meme is
`task.proxy`, or a second model of the task, and is drawn with a key of its own. The
running statistics of v_k stay with client k.
"""

from pfljax.algorithms._models import size_ratio
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.local_statistics import keep_of_proxy
from pfljax.core.losses import data_loss, divergence
from pfljax.core.ranges import Share
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task


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
      alpha: weight of the data loss in w_k's objective; 1 trains w_k alone.
      beta: weight of the data loss in v_k's objective; 1 is FedAvg.
    """
    proxy = task.proxy or task

    def objective(pair, batch, key):
        w, v = pair
        logits = task.logits(w, batch, key)
        meme = proxy.logits(v, batch, derive(key, "meme"))
        loss = data_loss(task, logits, batch)
        gap_w = divergence(meme, logits, batch)
        gap_v = divergence(logits, meme, batch)
        loss_w = alpha * loss + (1 - alpha) * gap_w
        loss_v = beta * data_loss(task, meme, batch) + (1 - beta) * gap_v
        return loss_w + loss_v, loss

    def train(turn, v, w, data):
        # One optimizer for both: their steps are simultaneous.
        pair, metrics = fit_objective(objective, (w, v), data, turn, local)
        return *pair, metrics

    method = alone(task, local)._replace(
        classes=True,
        init=lambda params, num_clients, key: proxy.init(key),
        message=lambda turn, v, w: v,
        train=train,
        work=lambda steps, size, is_first: (1 + size_ratio(proxy, task)) * steps,
        aggregate=aggregation.averaging("uniform"),
    )
    return keep_of_proxy(method, proxy)
