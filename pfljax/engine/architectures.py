"""Clients of several architectures, in groups of the same architecture.

The states of a group are one stacked pytree, and there is one server for all. A round
trains the cohort's members of each group in turn. A group has as many slots as it could
have members; empty ones come last and are left out. For example, the clients 0 1 2 3 4
5 have the models a b a b a b. The cohort 1 4 3 has the member 4 in group a (0 2 4), and
the members 1 and 3 in group b (1 3 5):

    group a   ids 4 - -   rows in its stack 2 - -   places in the cohort 1 - -
    group b   ids 1 3 -   rows in its stack 0 1 -   places in the cohort 0 2 -

Uploads are put into the places of their clients in the cohort, and aggregated once.
Uploads that differ by architecture stay stacked by group, with their places.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Metrics, RunState
from pfljax.engine import cohort_training, contract
from pfljax.engine.plan import Turns, assign_devices, empty_turn
from pfljax.engine.setting import Groups, Setting


def group_setting(setting: Setting, group: int, num_clients: int) -> Setting:
    """The setting of one group: its method, and its average number of clients as width.

    Without a width all slots would train under one vmap, including the empty ones.
    """
    groups = setting.groups
    assert groups is not None
    share = len(groups.members(group, num_clients)) / num_clients
    devices = setting.mesh.size if setting.mesh else 1
    expected = setting.selection.cohort * share / devices
    return setting._replace(
        algorithm=groups.algorithms[group],
        width=setting.width or max(1, int(np.ceil(expected))),
    )


def train_groups(
    setting: Setting,
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
) -> tuple[Any, Any, Metrics]:
    """`cohort_training.train_cohort`, group by group; uploads by place in the cohort.

    Uploads that differ by architecture are (stacks, their places), both by number.

    Raises:
      ValueError: the uploads of two groups cannot be stacked.
    """
    assert setting.groups is not None
    num_clients = train.size.shape[0]
    clients = []
    sent = []
    for group, stack in enumerate(state.clients):
        of_group = group_setting(setting, group, num_clients)
        members = _members(setting.groups, turns, group, num_clients)
        if setting.mesh is not None:
            stacked = len(setting.groups.members(group, num_clients))
            members = assign_devices(setting.mesh, members, num_clients, stacked)
        of_stack = state._replace(clients=stack)
        stack, uploads, metrics = cohort_training.train_cohort(
            of_group, of_stack, train, members, public
        )
        clients.append(stack)
        sent.append((members.position, uploads, metrics))
    places, uploads, metrics = zip(*sent, strict=True)
    cohort = turns.ids.shape[0]
    metrics = _put_in_place(places, metrics, cohort)
    if setting.algorithm.architecture is not None:
        by_number = dict(enumerate(uploads)), dict(enumerate(places))
        return tuple(clients), by_number, metrics
    return tuple(clients), _put_in_place(places, uploads, cohort), metrics


def _members(groups: Groups, turns: Turns, group: int, num_clients: int) -> Turns:
    """The turns of a group's members, with empty ones behind, [min(M, C_g)]."""
    # An empty place has the id C, which is in no group. A client that was drawn twice
    # trains in its first place only.
    exists = (turns.ids < num_clients) & (turns.draws > 0)
    is_member = exists & (groups.of(turns.ids) == group)
    cohort = turns.ids.shape[0]
    slots = min(cohort, len(groups.members(group, num_clients)))
    first = jnp.argsort(~is_member, stable=True)[:slots]
    turns = turns._replace(drawn=turns.ids)
    members = jax.tree.map(lambda leaf: leaf[first], turns)

    def mask_field(member: Array, none: Array) -> Array:
        return jnp.where(is_member[first], member, none.astype(member.dtype))

    return jax.tree.map(mask_field, members, empty_turn(num_clients))


def _put_in_place(places: Sequence[Array], sent: Sequence[Any], cohort: int) -> Any:
    """The groups' leaves, [M, ...], by place in the cohort; zeros elsewhere."""
    of_first = sent[0]
    in_place = tree.stack_zeros(tree.first(of_first), cohort)
    for places_of_group, of_group in zip(places, sent, strict=True):
        change = contract.first_change(tree.first(of_first), tree.first(of_group))
        if change is not None:
            raise ValueError(
                "clients of different architectures send what does not stack: "
                f"{change}; choose a method that sends the same of every architecture"
            )
        in_place = tree.put(in_place, places_of_group, of_group)
    return in_place
