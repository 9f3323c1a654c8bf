import numpy as np
import pytest

import perceptron
import tiny
from pfljax.algorithms.decoupling.partial import partial
from pfljax.conformance import Case, toy
from pfljax.simulate import begin

KERNELS = 4 * (3 * 4 + 4 * 3)  # bytes of what is shared if biases are private
CONFORMANCE = [
    Case("partial", bytes=(toy.BODY, toy.BODY)),
    Case(
        "partial",
        {"private": "bias", "alternate": True, "finetune": 2},
        bytes=(KERNELS, KERNELS),
    ),
]
BIASES = [True, False, True, False]  # of [b, W, c, V]


def steps(w, x, y, chosen):
    """Two steps of the chosen leaves on all examples."""
    for _ in range(2):
        slope = perceptron.logits(w, perceptron.features(w, x))
        new = perceptron.stepped(w, x, perceptron.cross_entropy_slope(slope, y))
        w = [a if c else b for a, b, c in zip(new, w, chosen, strict=True)]
    return w


@pytest.mark.parametrize("alternate", [False, True])
def test_partial_against_numpy(alternate):
    """Biases are private: clients train them first, with `alternate`, or at once."""
    task, local = toy.classifier(), perceptron.FULL
    method = partial(task, local, private="*/bias", alternate=alternate)
    train, _ = toy.ragged()
    states, _ = toy.run_rounds(method, task, local, train, 2, cohort=5)
    kernels = perceptron.weights(states[0].server)
    biases = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    for state in states[1:]:
        uploads, cohort = [], np.asarray(state.cohort)
        for k in cohort:
            (b, c), (first, last) = biases[k], kernels
            w = [b, first, c, last]
            if alternate:
                w = steps(w, *perceptron.examples(k), BIASES)
                w = steps(w, *perceptron.examples(k), np.invert(BIASES))
            else:
                w = steps(w, *perceptron.examples(k), [True] * 4)
            biases[k] = w[0], w[2]
            uploads.append((w[1], w[3]))
        kernels = perceptron.averaged(uploads, cohort)
        perceptron.assert_weights(state.server, kernels)
        perceptron.assert_clients(state.clients, biases)


@pytest.mark.parametrize(
    ("private", "says"),
    [
        ("'head bodi/*'", "private has 'bodi/.', which matches no leaf .*head/kernel"),
        ("'body */kernel head'", "which is all of the model's leaves; name a part"),
        ("''", "which is none of the model's leaves; name a part"),
        ("norm", "private has 'norm', which matches no leaf"),
    ],
)
def test_names_of_no_leaf_or_of_all_are_refused(private, says):
    job = tiny.TINY.replace(algorithm=f"partial:private={private}")
    with pytest.raises(ValueError, match=says) as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
