"""What the JSON files of a run folder must hold: see `pfljax.runtime.documents`.

More may stand there; this is what is read.
"""

from typing import Any

from pfljax.registry import AtLeastOne
from pfljax.runtime.documents import PLAIN

FIGURES = {str: ({str: (float, None)}, None)}  # over clients, by metric
RECORD = {"model": str, "split": str, "clients": str, "metrics": FIGURES}
EVALUATION = {"round": int, "evaluations": [RECORD]}
MIXTURE = {
    "half": FIGURES,
    "chosen_on_validation": (FIGURES, None),
    "ensemble?": FIGURES,
}
STOPPED = {"round": AtLeastOne, "by": str, "of": AtLeastOne}
CLIENTS = {
    "num_classes": AtLeastOne,
    "clients?": [int],
    "sizes": {str: [int]},
    "class_histogram": [[int]],
    "sha256": str,
}
FORMS: dict[str, Any] = {
    "config.json": {},  # told by `config.from_dict`, which knows every setting
    "environment.json": {"packages?": {str: str}, "devices?": [str]},
    "executor.json": {"width": (AtLeastOne, None)},
    "partition.json": {**CLIENTS, "unseen?": (CLIENTS, None)},
    "summary.json": {
        "rounds": AtLeastOne,
        "last": EVALUATION,
        "chosen_on_validation?": (EVALUATION, None),
        "mixture?": (MIXTURE, None),
        "traffic?": ({str: int}, None),
        "step_flops?": (float, None),
        "worse_than_local?": (float, None),
        "stopped?": STOPPED,
        "privacy?": ({str: (float, None)}, None),
        "checksums?": ({str: (int, None)}, None),
    },
    "sweep.json": {
        "experiment": dict,
        "over": {str: [PLAIN]},
        "asked?": {str: [PLAIN]},
    },
}
# A line of metrics.jsonl, and the settings of a run that was of another version.
LINE = {
    "round": AtLeastOne,
    "train_loss?": (float, None),
    "evaluations?": [RECORD],
    "stopped?": STOPPED,
    # In timing.jsonl.
    "seconds?": float,
    "peak_bytes?": int,
    "peak_of?": str,
}
SETTINGS = {"algorithm": str, "seed": int, "rounds": AtLeastOne, "hyper?": dict}
