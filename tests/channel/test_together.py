"""Channels together: their order, what cannot be combined, and bad input."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import channel
from pfljax.channel import STAGES
from pfljax.core.keys import derive
from uplink import CLIENTS, KEY, arrived, made

CHANGES = np.random.default_rng(1).normal(size=(CLIENTS, 40)).astype(np.float32)
MIXED = ["median", "qsgd", "lost", "clip", "sign_flip"]


def test_channels_act_in_the_order_of_their_stages():
    """Two orders give the same mean, but for the keys of what draws."""
    one, _ = arrived(made("median", "clip:norm=0.5", "ipm:attackers=0.3"),
                     np.zeros(40), CHANGES)  # fmt: skip
    other, _ = arrived(made("ipm:attackers=0.3", "median", "clip:norm=0.5"),
                       np.zeros(40), CHANGES)  # fmt: skip
    np.testing.assert_allclose(one, other, atol=1e-6)
    stages = [channel.CHANNELS[name]()().stage for name in MIXED]
    assert sorted(stages, key=STAGES.index) == list(STAGES)


def test_states_and_keys_go_by_the_place_that_was_given():
    """A run of before goes on with the noise that it had."""
    noise = channel.gaussian(std=1.0)()
    chain = made("gaussian:std=1.0", "median")
    upload = {"w": jnp.zeros(3)}
    whole = channel.Sender(key=KEY, id=0, asked=4)
    alone = noise.send((), whole._replace(key=derive(KEY, "0")), upload, upload, ())
    together = chain.send(((), ()), whole, upload, upload, ())
    np.testing.assert_array_equal(together.upload["w"], alone.upload["w"])
    assert len(together.report) == 2


REFUSED = {
    "sign_flip:attackers=1.5": "attackers is 1.5; expected a share of the clients",
    "sign_flip:attackers=-0.1": "attackers is -0.1; expected a share",
    "sign_flip:attackers=1.0": "attackers is 1.0; expected a share",
    "sign_flip:scale=0": "scale is 0; expected a finite number > 0",
    "random_update:scale=-1.0": "scale is -1.0; expected a finite number > 0",
    "model_replacement:boost=0.0": "boost is 0.0; expected a finite number > 0",
    "alie:z=-1.0": "z is -1.0; expected a finite number > 0",
    "ipm:scale=0.0": "scale is 0.0; expected a finite number > 0",
    "adaptive_clip:quantile=1.0": "quantile is 1.0; expected a number > 0 and below 1",
    "adaptive_clip:rate=0.0": "rate is 0.0; expected a finite number > 0",
    "dp:multiplier=-1.0": "multiplier is -1.0; expected a finite number >= 0",
    "dp:delta=0.0": "delta is 0.0; expected a number > 0 and below 1",
    "dp:norm=0.0": "norm is 0.0; expected a finite number > 0",
    "uniform:levels=1": "levels is 1; expected at least 2",
    "qsgd:levels=0": "levels is 0; expected at least 1",
    "qsgd:levels=0.5": "levels is 0.5; expected a whole number",
    "sign:feedback=3": "feedback is 3; expected True or False",
    "top_k:share=0.0": "share is 0.0; expected a share, 0 < share <= 1",
    "top_k:share=1.5": "share is 1.5; expected a share, 0 < share <= 1",
    "random_k:share=-0.5": "share is -0.5; expected a share, 0 < share <= 1",
    "low_rank:rank=0": "rank is 0; expected at least 1",
    "lost:share=1": "share is 1; expected a number >= 0 and below 1",
    "lost:rate=0.1": "unknown parameter 'rate'",
    "geometric_median:iterations=0": "iterations is 0; expected at least 1",
    "centred_clip:radius=0.0": "radius is 0.0; expected a finite number > 0",
    "norm_clip:norm=0.0": "norm is 0.0; expected a finite number > 0",
    "topk": "unknown channel 'topk'",
    "top_k sign": "channels top_k and sign are each a compressor; give one of them",
    "median krum": "channels median and krum are each a robust reducer; give one",
    "dp median": "channels dp and median are each a robust reducer; give one",
    "dp qsgd": "channel 'dp' needs changes that are no longer than its norm, but "
    "'qsgd' changes their length",
    "sign_flip:attackers=0.2 ipm:attackers=0.3": "channels have attackers 0.2 and 0.3; "
    "give all of them the same share",
}


@pytest.mark.parametrize("names", REFUSED)
def test_bad_channels_get_one_line(names):
    with pytest.raises(ValueError, match=re.escape(REFUSED[names])) as refused:
        made(*names.split())
    assert "\n" not in str(refused.value)
