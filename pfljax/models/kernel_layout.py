"""Finds the parameters whose outputs are along the first axis, not the last.

It stays as long as `Linear` and `LSTM` store their kernels [out, in], which fixes the
initial parameters of a run: without it, a random direction of a landscape would have
the norms of rows and columns of these kernels exchanged.
"""

import dataclasses

from flax import linen as nn

from pfljax.core.requirements import require_a


def outputs_first(network: nn.Module, path: tuple[str, ...] = ()) -> set[str]:
    """Returns the paths of parameters stored [out, ...]: "body/layers_0/kernel".

    A layer names them in `OUTPUTS_FIRST`. Layers are found where they are fields of a
    module, as in `nn.Sequential`, not where its `setup` or `__call__` makes them.

    Raises:
      ValueError: the network is no Linen module.
    """
    expected = "an instance of flax.linen.Module, such as models.model makes"
    require_a("network", network, nn.Module, expected)
    names = getattr(network, "OUTPUTS_FIRST", ())
    paths = {"/".join((*path, name)) for name in names}
    for field in dataclasses.fields(network):
        value = getattr(network, field.name, None)
        children = {field.name: value}
        if isinstance(value, list | tuple):
            children = {f"{field.name}_{i}": each for i, each in enumerate(value)}
        for name, child in children.items():
            # Every module has its parent as a field, which is no part of it.
            if isinstance(child, nn.Module) and field.name != "parent":
                paths |= outputs_first(child, (*path, name))
    return paths
