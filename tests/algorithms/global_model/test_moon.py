import perceptron
from pfljax.algorithms.global_model.moon import moon
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("moon", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("moon", {"mu": 5.0, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

MU, T = 4.0, 0.3


def trained(w, last, x, y):
    """[b, W, c, V] after two steps on all examples; `last` is None at first."""
    v = w
    for _ in range(2):
        z = perceptron.features(v, x)
        slope = perceptron.cross_entropy_slope(perceptron.logits(v, z), y)
        pull = 0.0
        if last is not None:
            near, far = (perceptron.features(old, x) for old in (w, last))
            pull = MU * perceptron.contrast_slope(z, near, far, T)
        v = perceptron.stepped(v, x, slope, pull)
    return v


def test_moon_against_numpy():
    """In later rounds, some clients take part again, and some for the first time."""
    last, again = {}, []

    def upload_of(w, k):
        again.append(k in last)
        last[k] = trained(w, last.get(k), *perceptron.examples(k))
        return last[k]

    models, cohorts = perceptron.run_averaging(moon, mu=MU, temperature=T)
    perceptron.assert_averages(models, cohorts, upload_of)
    assert 0 < sum(again[5:]) < 10
