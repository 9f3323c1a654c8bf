"""The data sets of the FedProx paper and their devices.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127, section 5 and appendix C.

Synthetic(1, 1) and MNIST of Figure 1 run here, and the other three synthetic sets.
FEMNIST runs if you have the official generator's JSON files in `train` and `test` below
`femnist` in the working directory. On Shakespeare, 20 epochs of an LSTM take hours of a
CPU, so there is only a small case. It has 20 roles with 50 examples of 20 characters,
and an LSTM with one layer of 32 units. The paper has 143 devices with 3,616 examples of
80 characters, and two layers of 256 units. Sent140 is not here, because its LSTM starts
from word vectors (GloVe) that are a separate download. Each seed draws synthetic data
and the partition again, where the paper has one draw of both.
"""

from typing import Literal

import numpy as np

from pfljax import data
from pfljax.data import Federation

Scale = Literal["small", "paper"]
SYNTHETIC = {  # name -> alpha = beta, None of IID rows
    "synthetic_iid": None,
    "synthetic_0_0": 0.0,
    "synthetic_05_05": 0.5,
    "synthetic_1_1": 1.0,
}
TITLES = {
    "synthetic_iid": "Synthetic-IID",
    "synthetic_0_0": "Synthetic (0, 0)",
    "synthetic_05_05": "Synthetic (0.5, 0.5)",
    "synthetic_1_1": "Synthetic (1, 1)",
    "mnist": "MNIST",
    "femnist": "FEMNIST",
    "shakespeare": "Shakespeare, small",
}
MODELS = {"shakespeare": "char_lstm:hidden=32,layers=1"}  # of others logistic
RATES = {"mnist": 0.03, "femnist": 0.003, "shakespeare": 0.8}  # of others 0.01
ROUNDS = {"mnist": 100}  # of others 200
DEVICES, MOST_ROWS, CHARACTERS = 20, 50, 20
FEMNIST = "femnist"  # the folder of its files


def federation(dataset: str, scale: Scale, seed: int) -> Federation:
    """The devices: nine tenths of the rows of each train."""
    small = scale == "small"
    if dataset == "shakespeare":
        arrays = few_roles(seed)
        dealing, devices = "natural", None
    elif dataset == "femnist":
        arrays = data.load("leaf", path=FEMNIST)
        dealing, devices = "natural", None
    elif dataset == "mnist":
        arrays = standardised(data.load("mnist", every=10 if small else 1))
        dealing = "classes_lognormal"
        devices = 100 if small else 1000
    else:
        value = SYNTHETIC[dataset]
        dealing, devices = "natural", None
        if value is None:
            arrays = data.load("synthetic_iid", seed=seed)
        else:
            arrays = data.load("synthetic", alpha=value, beta=value, seed=seed)
    return data.federate(
        arrays,
        dealing,
        num_clients=devices,
        seed=seed,
        test=0.1,
        validation=0.0,
        examples="all",
    )


def few_roles(seed: int) -> data.Arrays:
    """The first rows of roles that are drawn; of each row its last characters."""
    arrays = data.load("shakespeare_roles", stride=80, min_size=MOST_ROWS)
    assert arrays.client is not None
    roles = np.unique(arrays.client)
    drawn = np.random.default_rng(seed).choice(roles, DEVICES, replace=False)
    kept = [np.flatnonzero(arrays.client == role)[:MOST_ROWS] for role in drawn]
    index = np.concatenate(kept)
    return data.from_arrays(
        arrays.x[index, -CHARACTERS:],
        arrays.y[index],
        client=np.repeat(np.arange(DEVICES), [len(rows) for rows in kept]),
        num_classes=arrays.num_classes,
        scale=1.0,
        name="shakespeare_few_roles",
        source=arrays.source,
    )


def standardised(arrays: data.Arrays) -> data.Arrays:
    """Every pixel to mean 0 and deviation 1 over all rows; all rows may be dealt."""
    pixels = arrays.x.astype(np.float32)
    return arrays._replace(shift=pixels.mean(0), scale=pixels.std(0) + 0.001)
