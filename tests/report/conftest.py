"""TEST FIXTURE: synthetic run folders. The numbers are drawn, nothing was trained."""

import json

import numpy as np
import pytest

from pfljax.core.components import Component
from pfljax.runs.config import FORMAT
from pfljax.runs.folder import write_partition

LEVEL = {"local": 0.82, "fedavg": 0.72, "fedper": 0.88, "ditto": 0.9, "superfed": 0.93}
CONFIG = {
    "dataset": "digits",
    "partition": "shards:per_client=2",
    "model": "mlp",
    "lr": 0.01,
}
ENVIRONMENT = {
    "python": "3.11.7",
    "packages": {"jax": "0.10.2", "flax": "0.12.8"},
    "platform": "Linux-6",
    "processors": 2,
    "devices": ["cpu: cpu", "cpu: cpu"],
    "command": "pfljax run --algorithm <this>",
}
CALIBRATION = ("ece", "mce", "ece_batchwise", "mce_batchwise", "top5", "brier")
LAMBDA = np.linspace(0, 1, 11, dtype=np.float32)


def statistics(values, sizes):
    """S of the run folder: values [C], examples of the test set [C]."""
    low_to_high = np.sort(values)
    tenth = max(1, len(values) // 10)
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "weighted": float(np.average(values, weights=sizes)),
        "worst10": float(np.mean(low_to_high[:tenth])),
        "best10": float(np.mean(low_to_high[-tenth:])),
        "min": float(low_to_high[0]),
        "max": float(low_to_high[-1]),
    }


def record(model, split, metrics, sizes, finetune=0, clients="all"):
    return {
        "model": model,
        "finetune": finetune,
        "clients": clients,
        "when": "after the newest broadcast",
        "split": split,
        "count": len(sizes),
        "metrics": {name: statistics(v, sizes) for name, v in metrics.items()},
    }


def draw_partition(C, K):
    """Two classes a client; the same for every method and seed of the data."""
    rng = np.random.default_rng(7)
    histogram = np.zeros((C, K), int)
    for counts in histogram:
        counts[rng.choice(K, 2, replace=False)] = rng.integers(20, 80, 2)
    size = histogram.sum(1)
    return {
        "dataset": "digits",
        "source": "drawn for a test, CC BY 4.0",
        "num_classes": K,
        "clients": list(range(C)),
        "sizes": {
            "train": size.tolist(),
            "validation": (size // 8).tolist(),
            "test": (size // 4).tolist(),
        },
        "class_histogram": histogram.tolist(),
        "official": {"train": int(size.sum())},
        "seed": 0,
        "sha256": "ab" * 32,
    }


def draw_metrics(rng, algorithm, rounds, C):
    """Rising accuracies f32[T, C] by model and split, with loss and ECE beside."""
    arrays = {}
    rise = 1 - np.exp(-3 * rounds / rounds[-1])[:, None]
    ease = rng.normal(0, 0.06, C)
    for model, gap in (("server", 0.12), ("personal", 0.0)):
        gap = 0.0 if algorithm == "fedavg" else gap
        noise = rng.normal(0, 0.015, (len(rounds), C))
        level = (LEVEL[algorithm] - gap) * rise + (ease + noise) * rise + 0.05
        for split, shift in (("test", 0.0), ("validation", 0.01)):
            accuracy = np.clip(level + shift, 0, 1).astype(np.float32)
            arrays[f"{model}/{split}/accuracy"] = accuracy
            arrays[f"{model}/{split}/loss"] = np.float32(2.3) * (1 - accuracy)
            for i, name in enumerate(CALIBRATION):
                scale = np.float32(0.3 - 0.05 * i)
                arrays[f"{model}/{split}/{name}"] = scale * (1 - accuracy)
    if algorithm == "fedavg":
        for key in [k for k in arrays if k.startswith("server")]:
            arrays[key.replace("server", "personal")] = arrays[key]
    return arrays


def best_lambda(accuracy):
    """Index of the best lambda; ties to the nearest to 1/2, then to the smaller."""
    ties = [i for i, a in enumerate(accuracy) if a == max(accuracy)]
    return min(ties, key=lambda i: (abs(i - 5), i))


def draw_mixture(rng, final, sizes):
    """Arrays over lambda [C, 11] and the mixture part of the summary."""
    dip = -0.25 * (LAMBDA - 0.6) ** 2
    test = np.clip(final[:, None] + dip + rng.normal(0, 0.01, (len(final), 11)), 0, 1)
    validation = np.clip(test + rng.normal(0, 0.02, test.shape), 0, 1)
    arrays = {
        "mixture/lambda": LAMBDA,
        "mixture/test/accuracy": test.astype(np.float32),
        "mixture/validation/accuracy": validation.astype(np.float32),
    }
    test, validation = list(arrays.values())[1:]
    validation[0, 3:8] = 1  # a tie that is not settled by the first
    chosen = np.array(
        [t[best_lambda(v)] for t, v in zip(test, validation, strict=True)]
    )
    ensemble = test.mean(1)
    arrays["mixture/test/ensemble/accuracy"] = ensemble
    return arrays, {
        "ensemble": {"accuracy": statistics(ensemble, sizes)},
        "chosen_on_validation": {"accuracy": statistics(chosen, sizes)},
        "half": {"accuracy": statistics(test[:, 5], sizes)},
        "oracle_chosen_on_test": {"accuracy": statistics(test.max(1), sizes)},
    }


def evaluations_at(arrays, t, sizes, finetuned):
    """The records of evaluated round t."""
    found = []
    for model in ("server", "personal"):
        for split in ("test", "validation"):
            metrics = {
                m: arrays[f"{model}/{split}/{m}"][t]
                for m in ("accuracy", "loss", *CALIBRATION)
            }
            found.append(record(model, split, metrics, sizes))
    if finetuned:
        metrics = {"accuracy": np.minimum(1, arrays["server/test/accuracy"][t] + 0.1)}
        found.append(record("server", "test", metrics, sizes, finetune=5))
    return found


def draw_lines(arrays, rounds, sizes, algorithm):
    """The lines of metrics.jsonl."""
    traffic = 0 if algorithm == "local" else 52_000
    finetuned = algorithm == "fedavg"
    lines = []
    for r in range(1, rounds[-1] + 1):
        line = {
            "round": r,
            "train_loss": 2.3 * float(np.exp(-3 * r / rounds[-1])) + 0.1,
        }
        line |= {"bytes_down": traffic * r, "bytes_up": traffic * r}
        if r in rounds:
            t = int(np.searchsorted(rounds, r))
            line["evaluations"] = evaluations_at(arrays, t, sizes, finetuned)
        lines.append(line)
    return lines


def summary_of(label, algorithm, seed, lines, chosen):
    """The summary, without a mixture."""
    last = lines[-1]
    picked = {"round": chosen, "evaluations": lines[chosen - 1]["evaluations"]}
    return {
        "label": label or algorithm,
        "algorithm": algorithm,
        "seed": seed,
        "rounds": last["round"],
        "last": {"round": last["round"], "evaluations": last["evaluations"]},
        "chosen_on_validation": picked,
        "best_on_test": {"round": last["round"], "accuracy": 0.5},
        "mixture": None,
        "traffic": {
            "down_per_client": 10_400,
            "up_per_client": 10_400,
            "down_total": last["bytes_down"],
            "up_total": last["bytes_up"],
        },
    }


def write_synthetic_run(
    folder,
    algorithm="superfed",
    seed=0,
    *,
    C=20,
    K=10,
    R=40,
    every=4,
    label=None,
    **more,
):
    """Writes a whole run folder; returns the folder. `more` goes into the config."""
    folder.mkdir(parents=True)
    # str.encode, not hash(): a process has its own hash seed
    rng = np.random.default_rng([seed, *algorithm.encode()])
    partition = draw_partition(C, K)
    sizes = np.asarray(partition["sizes"]["test"], np.int32)
    rounds = np.arange(every, R + 1, every)
    arrays = draw_metrics(rng, algorithm, rounds, C)
    lines = draw_lines(arrays, rounds, sizes, algorithm)
    means = arrays["personal/validation/accuracy"].mean(1)
    summary = summary_of(label, algorithm, seed, lines, int(rounds[means.argmax()]))
    if algorithm == "superfed":
        final = arrays["personal/test/accuracy"][-1]
        extra, summary["mixture"] = draw_mixture(rng, final, sizes)
        arrays |= extra
    config = CONFIG | {"algorithm": algorithm, "clients": C, "rounds": R, "seed": seed}
    config["cohort"] = min(5, C)
    config |= {"hyper": {"mu": 0.01} if algorithm == "superfed" else {}}
    config |= {"out": str(folder), "label": label} | more
    arrays |= {
        "round": rounds.astype(np.int32),
        "train_size": np.asarray(partition["sizes"]["train"], np.int32),
        "test_size": sizes,
        "participations": np.full(C, R // 4, np.int32),
    }
    write_files(folder, config, partition, summary, lines, arrays)
    return folder


def written(config):
    """The settings as config.json has them: the method with its options."""
    method = Component(config["algorithm"], config["hyper"])
    settings = {name: config[name] for name in config if name != "hyper"}
    return settings | {"algorithm": str(method), "format": FORMAT}


def write_files(folder, config, partition, summary, lines, arrays):
    """The files of a run folder."""
    for name, value in (
        ("config", written(config)),
        ("summary", summary),
        ("environment", ENVIRONMENT | {"width": 7, "seconds": 0.5 * len(lines)}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(value))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    write_partition(folder, partition, {})
    np.savez(folder / "clients.npz", **arrays)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """One synthetic SuPerFed run; tests must not change it."""
    root = tmp_path_factory.mktemp("run")
    return write_synthetic_run(root / "superfed", label="SuPerFed-MM")


@pytest.fixture(scope="session")
def comparison_folders(tmp_path_factory):
    """Synthetic runs of five methods and three seeds; tests must not change them."""
    root = tmp_path_factory.mktemp("comparison")
    names = {"superfed": "SuPerFed-MM", "local": "local only", "fedavg": "FedAvg"}
    return [
        write_synthetic_run(root / f"{name}{seed}", name, seed, label=names.get(name))
        for name in LEVEL
        for seed in range(3)
    ]


@pytest.fixture(scope="session")
def make_run():
    """The function that writes a synthetic run, for tests that need their own."""
    return write_synthetic_run
