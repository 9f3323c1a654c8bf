"""pFedVEM whose heads are averaged by rows, CVPR 2023, https://arxiv.org/abs/2305.12557.

    Server   w, the mean of the heads' prior; theta, the body
    Client   q_k = N(mu_k, sigma_k^2), this client's posterior of its head
    Message  w, theta         Upload  mu_k, theta_k, tau_k
As pFedVEM, but for  w <- sum_k n_k mu_k / sum_k n_k:  the confidence tau_k still pulls
a client to w, and does not say what the client counts for.
"""

from pfljax.algorithms.bayesian.pfedvem import pfedvem
from pfljax.core import aggregation
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count, NotNegative, Positive
from pfljax.core.types import Algorithm, Local, Task


@component
def pfedvem_by_rows(
    task: Task,
    local: Local,
    *,
    head_steps: Count = 10,
    head_lr: NotNegative = 1e-3,
    scale: Positive = 1.0,
    samples: AtLeastOne = 5,
) -> Algorithm:
    """Builds it; of clients with equal confidence and rows it is pFedVEM."""
    method = pfedvem(
        task,
        local,
        head_steps=head_steps,
        head_lr=head_lr,
        samples=samples,
        scale=scale,
    )

    def aggregate(server, uploads, cohort):
        return aggregation.mean(uploads.params, aggregation.by_examples(cohort))

    return method._replace(aggregate=aggregate)
