"""FedBN: clients keep their normalisation layers and share all other layers.

Li et al., ICLR 2021, https://arxiv.org/abs/2102.07623.

    Server   w, all leaves but the norms'      Client  n_k, its normalisation layers
    Message  w                                 Upload  w_k, after local training

Scales, biases and running statistics of normalisation layers are private; everything is
trained jointly, and w <- sum_k n_k w_k / sum_k n_k. Client k is evaluated with the
newest w and its own layers; those of a client that never took part are as they were
drawn, unless `finetune` first trains them. The paper has batch normalisation. Here the
layers are found by structure (`core.leaves`), and group or layer normalisation are
kept as well.

Published code matches names instead, such as "bn", and misses torchvision's
`downsample.1`. The authors' code weights clients equally (weighting="uniform").
"""

from pfljax.algorithms.decoupling.partial import keep_leaves
from pfljax.core import leaves
from pfljax.core.factories import component
from pfljax.core.ranges import Count
from pfljax.core.types import Algorithm, Local, Task


@component
def fedbn(
    task: Task, local: Local, *, finetune: Count = 0, weighting: str = "examples"
) -> Algorithm:
    """Builds FedBN; a run refuses a model without normalisation, which is FedAvg.

    Args:
      finetune: steps of the kept layers before the evaluation; 0 for none.
      weighting: the weight of a client at the server: "examples" or "uniform".
    """
    norm = leaves.of_kind(task, "norm")
    method = keep_leaves(task, local, norm, finetune, weighting)
    return method._replace(parts=("norm",))
