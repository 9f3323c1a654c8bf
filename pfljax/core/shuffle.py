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
    index: Array, size: Array | int, key: Key, epoch: Array | int = 0
) -> Array:
    """Where the shuffle (key, epoch) of [0, size) sends `index`.

    `index` is an integer array of any shape with values in [0, size); `size` (at most
    2**31) and `epoch` may be traced. One step takes O(1) time and memory.
    """
    size = jnp.maximum(jnp.asarray(size, jnp.uint32), 1)
    bits = 32 - jax.lax.clz(jnp.maximum(size, MIN_DOMAIN) - 1)  # domain 2**bits
    words = jax.random.key_data(key).ravel()
    epoch = jnp.asarray(epoch).astype(jnp.uint32)
    state = mix(words[0] ^ mix(words[1] ^ mix(epoch + jnp.uint32(GOLDEN))))
    steps = jnp.arange(1, ROUNDS + 1, dtype=jnp.uint32) * jnp.uint32(GOLDEN)
    round_keys = mix(state + steps)

    def walk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        place, outside = carry
        place = jnp.where(outside, _feistel(place, bits, round_keys), place)
        return place, place >= size

    index = jnp.asarray(index).astype(jnp.uint32)
    start = index, jnp.ones(index.shape, bool)
    end, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, start)
    return end.astype(jnp.int32)


def _feistel(place: Array, bits: Array, round_keys: Array) -> Array:
    """A permutation of [0, 2**bits): each half in turn is masked by the other."""
    low_bits = bits // 2
    low_mask = (jnp.uint32(1) << low_bits) - 1
    high_mask = (jnp.uint32(1) << (bits - low_bits)) - 1
    low, high = place & low_mask, place >> low_bits
    for i in range(ROUNDS):
        if i % 2:
            low ^= mix(high ^ round_keys[i]) & low_mask
        else:
            high ^= mix(low ^ round_keys[i]) & high_mask
    return (high << low_bits) | low


def mix(word: Array) -> Array:
    """Finaliser of MurmurHash3: every input bit reaches every output bit."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
