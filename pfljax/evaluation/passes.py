"""How many rows are predicted at once."""

import jax

ROWS = {"cpu": 32, "accelerator": 1024}


def rows_per_pass(batch_size: int) -> int:
    """Rows that are predicted at once: whole batches, about `ROWS`.

    A CPU's caches hold the patches of few images: 50 rows of the CIFAR-10 CNN take two
    thirds of the time of 250.
    """
    kind = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    batches = max(1, ROWS[kind] // batch_size)
    return batches * batch_size


def even_passes(most: int, batch_size: int) -> int:
    """Rows at once, whole batches, so that `most` rows fill the passes over them."""
    passes = max(1, most // rows_per_pass(batch_size))
    # Rounded up: 130 rows in 2 passes of batches of 10 are 7 batches each.
    batches = -(-most // (passes * batch_size))
    return max(1, batches) * batch_size
