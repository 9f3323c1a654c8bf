"""Data in the layout of PFLlib and HtFLlib: a file for each client, train and test.

Zhang et al., PFLlib, JMLR 2025, https://arxiv.org/abs/2312.04992. `config.json` has
`num_clients` and `num_classes`; `train/K.npz` and `test/K.npz` have {"x": x, "y": y} of
client K as the pickled dict `data`. Images are [N, channels, height, width], scaled.
"""

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.factories import validate
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.files import reading

LAYOUT = "expected the folder of a data set of PFLlib, with config.json, train and test"
PARTS = OFFICIAL_NAMES[:2]
HARMLESS = {  # what a pickle of arrays calls
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


@validate
def pfllib(*, path: str) -> Arrays:
    """Loads a data set that PFLlib or HtFLlib has dealt, as natural clients.

    Images become [N, height, width, channels]. The files of a client are its official
    split, and PFLlib's scaling stays.

    Raises:
        ValueError: there is no such folder, or files have another layout.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{path} has no config.json; {LAYOUT}")
    with reading(folder / "config.json", LAYOUT):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        num_clients = int(config["num_clients"])
        num_classes = int(config["num_classes"])
    files = [
        (folder / part / f"{client}.npz", official, client)
        for official, part in enumerate(PARTS)
        for client in range(num_clients)
    ]
    examples = []
    for file, _, _ in files:
        if not file.is_file():
            raise ValueError(f"{file} is missing, one of {num_clients} clients")
        with reading(file, LAYOUT):
            examples.append(_read(file))
    size = [len(y) for _, y in examples]
    with reading(folder, "make it again with PFLlib"):
        x = np.concatenate([x for x, _ in examples])
        return from_arrays(
            np.moveaxis(x, 1, 3) if x.ndim == 4 else x,
            np.concatenate([y for _, y in examples]),
            client=np.repeat([client for _, _, client in files], size),
            official=np.repeat([official for _, official, _ in files], size),
            num_classes=num_classes,
            name=folder.name,
        )


class _Unpickler(pickle.Unpickler):
    """Reads arrays; a pickle that would call anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")
        if (module, name) not in HARMLESS:
            raise ValueError(
                f"its pickle calls {module}.{name}, and could run any code"
            )
        return super().find_class(module, name)


def _read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """The examples and labels of one client."""
    with zipfile.ZipFile(file) as archive, archive.open("data.npy") as stream:
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        data = _Unpickler(stream).load().item()
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    if x.dtype == object:
        raise ValueError(
            "its x are texts, pairs of tokens and a length; write the tokens as "
            "integers [N, length], with client and official, for the data set npz"
        )
    if len(x) != len(y):
        raise ValueError(f"it has {len(x)} x and {len(y)} y")
    return x, y
