"""A shuffle without an array: a keyed bijection of [0, size), computed where needed.

A Feistel network permutes the next power of two; cycle walking brings every index back
below `size`. Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
"""

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Key

ROUNDS = 8
MIN_DOMAIN = 64  # below, 8 rounds are visibly not uniform
GOLDEN = 0x9E3779B9  # 2**32 / golden ratio: spreads the rounds


def index_shuffle(
    index: Array,
    size: Array | int,
    key: Key,
    epoch: Array | int = 0,
) -> Array:
    """Maps `index` by the shuffle (key, epoch) of [0, size).

    `index` is an integer array of any shape with values in [0, size). `size`, at most
    2**31, and `epoch`, which is broadcast to `index`, may be traced. An index takes
    O(1) time and memory.
    """
    # A client without examples shuffles one, because without any no walk would end.
    size = jnp.maximum(jnp.asarray(size, jnp.uint32), 1)
    domain = jnp.maximum(size, MIN_DOMAIN)
    bits = 32 - jax.lax.clz(domain - 1)  # domain 2**bits
    round_keys = _round_keys(key, jnp.asarray(epoch))

    def walk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        value, outside = carry
        next_value = _feistel(value, bits, round_keys)
        # Values inside stay, while the others walk on.
        value = jnp.where(outside, next_value, value)
        return value, value >= size

    def any_outside(carry: tuple[Array, Array]) -> Array:
        _, outside = carry
        return jnp.any(outside)

    index = jnp.asarray(index).astype(jnp.uint32)
    # Each takes at least one step, because every index is inside at first.
    start = index, jnp.ones(index.shape, bool)
    end, _ = jax.lax.while_loop(any_outside, walk, start)
    return end.astype(jnp.int32)


def _round_keys(key: Key, epoch: Array) -> Array:
    """Makes a word for each round of the network, u32[..., ROUNDS]."""
    golden = jnp.uint32(GOLDEN)
    words = jax.random.key_data(key).ravel()
    # They are mixed in between; after a plain XOR a key and an epoch could cancel.
    state = mix(epoch.astype(jnp.uint32) + golden)
    state = mix(words[1] ^ state)
    state = mix(words[0] ^ state)
    numbers = jnp.arange(1, ROUNDS + 1, dtype=jnp.uint32)
    return mix(state[..., None] + numbers * golden)


def _feistel(
    value: Array,
    bits: Array,
    round_keys: Array,
) -> Array:
    """Permutes [0, 2**bits): each half in turn is masked by the other."""
    one = jnp.uint32(1)
    low_bits = bits // 2
    high_bits = bits - low_bits
    low_mask = (one << low_bits) - 1
    high_mask = (one << high_bits) - 1
    low = value & low_mask
    high = value >> low_bits
    for i in range(ROUNDS):
        # Any function of the other half will do, because XOR undoes itself.
        if i % 2:
            low ^= mix(high ^ round_keys[..., i]) & low_mask
        else:
            high ^= mix(low ^ round_keys[..., i]) & high_mask
    return (high << low_bits) | low


def mix(word: Array) -> Array:
    """Applies the finaliser of MurmurHash3: all input bits reach all output bits."""
    word ^= word >> 16
    word *= jnp.uint32(0x85EBCA6B)
    word ^= word >> 13
    word *= jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
