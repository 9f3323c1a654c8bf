"""A shuffle without an array: a keyed bijection of [0, size), computed where needed.

A Feistel network permutes the next power of two; cycle walking brings every index back
below `size`. Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
"""

import jax
import jax.numpy as jnp

from pfljax.types import Array, Key

ROUNDS = 8
MIN_DOMAIN = 64  # below, 8 rounds are visibly not uniform
GOLDEN = 0x9E3779B9  # 2**32 / golden ratio: spreads consecutive epochs and rounds


def index_shuffle(index: Array, size: Array, key: Key, epoch: Array | int = 0) -> Array:
    """Where the shuffle (key, epoch) of [0, size) sends `index`.

    `index` is an integer array of any shape with values in [0, size); `size` (at most
    2**31) and `epoch` may be traced. One step takes O(1) time and memory.
    """
    size = jnp.maximum(jnp.asarray(size, jnp.uint32), 1)
    bits = 32 - jax.lax.clz(jnp.maximum(size, MIN_DOMAIN) - 1)  # domain 2**bits
    words = jax.random.bits(key, (2,), jnp.uint32)
    round_keys = _round_keys(words, jnp.asarray(epoch, jnp.uint32))

    def walk(place: Array) -> Array:
        return jnp.where(place < size, place, _feistel(place, bits, round_keys))

    start = _feistel(jnp.asarray(index).astype(jnp.uint32), bits, round_keys)
    end = jax.lax.while_loop(lambda place: jnp.any(place >= size), walk, start)
    return end.astype(jnp.int32)


def _round_keys(words: Array, epoch: Array) -> list[Array]:
    """One well mixed u32 a Feistel round."""
    state = _mix(words[0] ^ _mix(epoch * jnp.uint32(GOLDEN) + words[1]))
    steps = [jnp.uint32((GOLDEN * (i + 1)) % 2**32) for i in range(ROUNDS)]
    return [_mix(state + step) for step in steps]


def _feistel(place: Array, bits: Array, round_keys: list[Array]) -> Array:
    """A permutation of [0, 2**bits): each half in turn is masked by the other."""
    low_bits = bits // 2
    low_mask = (jnp.uint32(1) << low_bits) - 1
    high_mask = (jnp.uint32(1) << (bits - low_bits)) - 1
    low, high = place & low_mask, place >> low_bits
    for i, round_key in enumerate(round_keys):
        if i % 2:
            low ^= _mix(high ^ round_key) & low_mask
        else:
            high ^= _mix(low ^ round_key) & high_mask
    return (high << low_bits) | low


def _mix(word: Array) -> Array:
    """Finaliser of MurmurHash3: every input bit reaches every output bit."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
