"""The study of selections: each is told what it asks for."""

import jax
import numpy as np
import pytest


@pytest.fixture
def selections(study):
    return study("selections")


def test_a_choice_is_told_what_it_asks_for(selections):
    job = selections.SMALL
    federation, _ = selections.build_federation(job)
    shape = selections.components.shape_of(job, federation)
    task = selections.components.make_task(job, shape)
    seconds = np.asarray(federation.train.size) / 2.0
    for text in ("availability:pattern=labels,beta=0.95", "oort"):
        select = selections.chosen(job, text, federation, task, seconds)
        ids = np.asarray(select.choose(select.init(), jax.random.key(0)))
        assert (ids <= federation.num_clients).all(), text
