"""The number of examples that are predicted at once."""

import jax

ROWS = {"cpu": 32, "accelerator": 1024}


def rows_per_pass(batch_size: int) -> int:
    """Examples that are predicted at once: whole batches, about `ROWS` examples.

    A CPU's caches hold the patches of few images: with 50 examples of the CIFAR-10 CNN
    at once, an evaluation takes two thirds of its time with 250.
    """
    kind = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    batches = max(1, ROWS[kind] // batch_size)
    return batches * batch_size


def even_passes(most: int, batch_size: int) -> int:
    """Examples at once, whole batches, so that `most` examples fill their passes."""
    passes = max(1, most // rows_per_pass(batch_size))
    # Rounded up: 130 rows in 2 passes of batches of 10 are 7 batches each.
    batches = -(-most // (passes * batch_size))
    return max(1, batches) * batch_size
