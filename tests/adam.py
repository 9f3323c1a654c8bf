"""Adam in NumPy, for oracles of methods that step by it."""

import numpy as np


def adam(x, slope, rate, steps=3):
    """Adam of optax' constants."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, steps + 1):
        g = slope(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return x
