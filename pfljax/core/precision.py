"""The numbers in which a model computes, by name; `models.mixed_precision` makes them.

Nothing is imported here: whoever only reads a run folder checks its settings by this.
"""

PRECISIONS = ("float32", "tf32", "bfloat16")
EXACT = PRECISIONS[0]
