"""Compressors against NumPy, their limits, their bits, and error feedback."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import channel
from uplink import change_of, leaving, made, sent_by

RNG = np.random.default_rng(0)
X = RNG.normal(size=40).astype(np.float32)
MATRIX = RNG.normal(size=(8, 12)).astype(np.float32)


@pytest.mark.parametrize(
    "name", ["uniform:levels=4", "qsgd:levels=2", "random_k:share=0.25"]
)
def test_the_mean_over_keys_is_the_change(name):
    chain = made(name)
    many = jax.vmap(lambda key: _sent(chain, key))(
        jax.random.split(jax.random.key(1), 4000)
    )
    sent = np.asarray(many, np.float64)
    deviation = sent.std(0) / np.sqrt(len(sent))
    assert (np.abs(sent.mean(0) - X) < 5 * deviation + 1e-5).all()
    assert sent.std(0).max() > 0.1


def _sent(chain, key):
    sender = channel.Sender(key=key, id=jnp.int32(0), asked=4)
    state = chain.init(channel.Start(key, 4))
    upload = {"w": jnp.asarray(X)}
    return chain.send(state, sender, {"w": jnp.zeros(40)}, upload, ()).upload["w"]


def test_terngrad_is_unbiased_of_the_clipped_change():
    spiked = X.copy()
    spiked[3] = 50
    limit = 2.5 * spiked.std()
    chain = made("terngrad")
    sent = np.stack([change_of(chain, spiked, seed) for seed in range(200)])
    assert sorted(set(np.abs(sent).ravel().tolist())) == [0, pytest.approx(limit)]
    np.testing.assert_allclose(sent[:, 3], limit, rtol=1e-6)
    clipped = np.clip(spiked, -limit, limit)
    deviation = sent.std(0) / np.sqrt(200)
    assert (np.abs(sent.mean(0) - clipped) < 6 * deviation + 1e-4).mean() > 0.9


def test_quantisers_give_their_levels():
    spaced = change_of(made("uniform:levels=5"), X)
    number = (spaced - X.min()) / (X.max() - X.min()) * 4
    np.testing.assert_allclose(number, np.round(number), atol=1e-5)
    assert np.abs(spaced - X).max() <= (X.max() - X.min()) / 4
    number = change_of(made("qsgd:levels=3"), X) / np.linalg.norm(X) * 3
    np.testing.assert_allclose(number, np.round(number), atol=1e-5)
    assert (np.sign(number) * np.sign(X) >= 0).all()


@pytest.mark.parametrize("name", ["uniform", "qsgd", "terngrad", "sign", "top_k"])
def test_of_no_change_nothing_arrives(name):
    np.testing.assert_array_equal(change_of(made(_alone(name)), np.zeros(40)), 0)


def _alone(name):
    return f"{name}:feedback=False" if name in ("sign", "top_k", "low_rank") else name


def test_sign_top_k_and_low_rank_against_numpy():
    signs = np.abs(X).mean() * np.where(X < 0, -1, 1)
    np.testing.assert_allclose(change_of(made("sign:feedback=False"), X), signs, 1e-5)
    largest = np.argsort(-np.abs(X))[:10]
    wanted = np.zeros_like(X)
    wanted[largest] = X[largest]
    sent = change_of(made("top_k:share=0.25,feedback=False"), X)
    np.testing.assert_array_equal(sent, wanted)
    u, s, vt = np.linalg.svd(MATRIX)
    wanted = u[:, :2] * s[:2] @ vt[:2]
    sent = change_of(made("low_rank:rank=2,feedback=False"), MATRIX)
    np.testing.assert_allclose(sent, wanted, atol=1e-5)


def test_random_k_keeps_so_many_at_random():
    sent = change_of(made("random_k:share=0.25"), X)
    assert (sent != 0).sum() == 10
    np.testing.assert_allclose(sent[sent != 0], 4 * X[sent != 0], rtol=1e-6)
    plain = leaving(
        made("random_k:share=0.25,feedback=True"), *_trees(), memory=_none()
    )
    kept = np.asarray(plain.upload["w"])
    np.testing.assert_array_equal(kept[kept != 0], X[kept != 0])
    assert (change_of(made("random_k:share=0.25"), X, seed=1) != sent).any()


def _trees():
    return {"w": jnp.zeros(40)}, {"w": jnp.asarray(X)}


def _none():
    return ({"w": jnp.zeros(40)},)


@pytest.mark.parametrize(
    "name",
    [
        "top_k:share=1.0,feedback=False", "random_k:share=1.0",
        "low_rank:rank=8,feedback=False", f"uniform:levels={2**31 - 1}",
        f"qsgd:levels={2**31 - 1}",
    ],
)  # fmt: skip
def test_what_would_be_no_shorter_goes_as_it_is(name):
    """The limits of the card: k = d, full rank, as many levels as a float has."""
    start = {"w": jnp.full((8, 12), 0.3), "count": jnp.int32(4), "of": jnp.ones(2)}
    upload = {"w": jnp.asarray(MATRIX), "count": jnp.int32(9), "of": jnp.zeros(2)}
    start["of"] = None  # no change: it passes whatever the channel
    if "levels" in name:
        # 31 bits a coordinate are still fewer than 32: of a pair they are not.
        start["w"] = start["w"][:4, :8]
        upload["w"] = upload["w"][:4, :8]
    sent = sent_by(made(name), start, upload)
    for leaf, same in zip(jax.tree.leaves(sent), jax.tree.leaves(upload), strict=True):
        np.testing.assert_array_equal(leaf, same)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("uniform:levels=16", 4 * 96 + 64 + (4 * 12 + 64)),
        ("qsgd:levels=8", math.log2(17) * 108 + 64),
        ("terngrad", math.log2(3) * 108 + 64),
        ("sign", 108 + 64),
        ("top_k:share=0.25", 24 * (32 + math.log2(96)) + 3 * (32 + math.log2(12))),
        ("random_k:share=0.25", 32 * (24 + 3) + 64),
        ("low_rank:rank=2", 32 * 2 * (8 + 12) + 32 * 12),
        ("clip", 32 * 108),
        ("adaptive_clip", 32 * 108 + 1),
    ],
)
def test_bits_are_counted(name, bits):
    upload = {"w": jnp.asarray(MATRIX), "b": jnp.ones(12), "count": jnp.int32(3)}
    origin = {**upload, "count": None}
    found = channel.count_bytes(made(name), origin, upload)
    assert found == 4 + math.ceil(bits / 8)


@pytest.mark.parametrize("name", ["sign", "top_k:share=0.1", "low_rank:rank=1"])
def test_what_is_left_out_goes_another_time(name):
    """e <- p - sent, and the sum of what is sent comes near the sum of the changes."""
    chain = made(name)
    leaf = MATRIX if "rank" in name else X
    origin = {"w": jnp.zeros_like(leaf)}
    memory = chain.memory(origin, origin)
    error = np.zeros_like(leaf)
    total = np.zeros_like(leaf)
    for _ in range(30):
        sent = leaving(chain, origin, {"w": jnp.asarray(leaf)}, memory=memory)
        expected = change_of(made(f"{name}{',' if ':' in name else ':'}feedback=False"),
                             error + leaf)  # fmt: skip
        np.testing.assert_allclose(sent.upload["w"], expected, atol=1e-4)
        error = error + leaf - expected
        np.testing.assert_allclose(sent.memory[0]["w"], error, atol=1e-3)
        memory = sent.memory
        total += np.asarray(sent.upload["w"])
    assert np.linalg.norm(total / 30 - leaf) < 0.5 * np.linalg.norm(leaf)


def test_feedback_needs_a_memory_in_the_clients_states():
    chain = made("sign")
    tree = {"w": jnp.ones(40)}
    method = _Method(lambda message, client, upload: message)
    with pytest.raises(ValueError, match=r"error feedback needs a memory.*fit`"):
        channel.send(chain, method, ((),), leaving.__defaults__, tree, (), (), tree)


class _Method:
    """The part of a method that `sent` uses."""

    uploads_by_client = False

    def __init__(self, origin):
        self.origin = origin
