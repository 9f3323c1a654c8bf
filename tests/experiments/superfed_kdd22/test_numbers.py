"""The numbers that the experiments take out of a sweep, against runs made by hand."""

import importlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from pfljax import landscape

CLIENTS = 3


def load(name):
    return importlib.import_module(name)


def made(over, rounds=20):
    """A sweep whose k-th run has accuracies of its own everywhere, in order."""
    swept = load("shared.swept")
    names, found = [*over], []
    for k, values in enumerate(itertools.product(*over.values())):
        rng = np.random.default_rng(k)
        evaluated = {
            f"{model}/{split}/{metric}": rng.random((2, CLIENTS))
            for model in ("personal", "server")
            for split in ("test", "validation")
            for metric in ("accuracy", "ece_batchwise", "ece")
        }
        path = {
            f"{split}/accuracy": rng.random((CLIENTS, 11))
            for split in ("test", "validation")
        }
        size = {"test": np.full(CLIENTS, 7), "validation": np.full(CLIENTS, 5)}
        at = np.array([rounds // 2, rounds])
        given = dict(zip(names, values, strict=True))
        found.append(swept.Result(given, at, np.zeros(rounds), evaluated, path, size))
    base = load("deviations").BASE.replace(rounds=rounds)
    return swept.Sweep(base, {k: [*v] for k, v in over.items()}, found)


def last(result, name="personal/test/accuracy"):
    return 100 * result.metrics[name][-1]


def test_figure_3_is_the_best_lambda_of_each_client_over_seeds(tmp_path):
    module = load("fig3")
    over = {"mixing": ("model", "layer"), "mu": module.MU, "nu": module.NU}
    sweep = made(over | {"seed": (0, 1)})
    table = module.grid(sweep, "layer")
    pair = sweep.results[32 + 2 * (4 * 2 + 3) :][:2]  # layer, mu = .1, nu = 5
    assert [r.values["mu"] for r in pair] == [0.1, 0.1]
    best = [100 * r.path["test/accuracy"].max(1).mean() for r in pair]
    assert table[0, 2, 3] == pytest.approx(np.mean(best))
    assert table[1, 2, 3] == pytest.approx(abs(best[0] - best[1]) / 2**0.5)
    assert len(np.unique(table)) == 32
    assert module.theirs("layer").shape == (2, 4, 4)
    alone = module.grid(made(over | {"seed": (0,)}), "layer")
    assert np.isnan(alone[1]).all()
    drawn = module.figure({"here": table, "published": module.theirs("layer")})
    texts = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert sum("±" in text for text in texts) == 16
    module.write_table({"LM": (module.theirs("layer"), table)}, tmp_path)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0] == "method,mu,nu,published,mean,over_seeds"
    expected = f"LM,0.1,5.0,82.8,{table[0, 2, 3]:.4f},{table[1, 2, 3]:.4f}"
    assert [float(x) for x in lines[12].split(",")[1:]] == [
        float(x) for x in expected.split(",")[1:]
    ]


def test_figure_a2_is_a_mean_over_clients_and_seeds_by_lambda(tmp_path):
    sweep = made({"seed": (0, 1)})
    module = load("figA2")
    mean, std, over_seeds = module.curve(sweep)
    paths = [100 * r.path["test/accuracy"] for r in sweep.results]
    assert mean[3] == pytest.approx((paths[0][:, 3].sum() + paths[1][:, 3].sum()) / 6)
    assert std[3] == pytest.approx((paths[0][:, 3].std() + paths[1][:, 3].std()) / 2)
    apart = abs(paths[0][:, 3].mean() - paths[1][:, 3].mean())
    assert over_seeds[3] == pytest.approx(apart / 2**0.5)
    assert np.isnan(module.curve(made({"seed": (0,)}))[2]).all()
    assert len(module.figure({"APFL": module.curve(sweep)}).axes) == 1
    module.write_table({"APFL": module.curve(sweep)}, tmp_path)
    line = (tmp_path / "table.csv").read_text().splitlines()[4].split(",")
    assert line[:2] == ["APFL", "0.3"]
    found = [float(x) for x in line[2:]]
    assert found == pytest.approx([mean[3], std[3], over_seeds[3]], abs=1e-4)


def test_figure_a1_measures_what_lies_below_a_level(monkeypatch):
    axis = np.linspace(-1, 1, 5)
    bowl = axis[:, None] ** 2 + axis**2  # 0 in the middle, 2 in the corners
    plane = landscape.Plane(axis, axis, {"loss": 0.5 + bowl}, {})
    module = load("figA1")
    assert module.center(plane) == 0.5
    assert module.below(plane, 0.75) == 5 / 25  # the middle and its four neighbours
    assert module.below(plane, 9.0) == 1
    rises = {(0.05, False): 0.1, (0.5, True): 0.2}
    monkeypatch.setattr(landscape, "pooled", lambda rows: rows)
    monkeypatch.setattr(
        landscape,
        "sharpness",
        lambda *_, rho, adaptive=False: SimpleNamespace(rise=rises[rho, adaptive]),
    )
    monkeypatch.setattr(landscape, "eigen", lambda *_, top: SimpleNamespace(values=[3]))
    run = SimpleNamespace(task=None, server=dict, federation=SimpleNamespace(test=0))
    shares = [100 * np.mean(plane.metrics["loss"] <= at) for at in (0.5, 1, 2, 1)]
    assert module.measured(run, plane) == (0.5, *shares, 0.1, 0.2, 3.0)


def test_tuning_takes_the_best_point_on_validation_examples():
    module = load("tuned")
    sweep = made({"lr": (0.1, 0.2), "mu": (0.0, 1.0)})
    scores = [r.metrics["personal/validation/accuracy"][-1] for r in sweep.results]
    chosen = module.best(sweep)
    assert chosen == sweep.results[int(np.argmax([s.mean() for s in scores]))].values
    scores[2][:] = 2.0
    assert module.best(sweep) == {"lr": 0.2, "mu": 0.0}
    seeds = made({"seed": (0, 1, 2)})
    means = [last(r).mean() for r in seeds.results]
    expected = np.mean(means), np.mean([last(r).std() for r in seeds.results])
    np.testing.assert_allclose(module.accuracy(seeds)[:2], expected)
    assert module.accuracy(seeds)[2] == pytest.approx(np.std(means, ddof=1))


def test_a_tuned_method_with_one_seed_has_no_std_and_may_have_diverged():
    module = load("tuned")
    sweep = made({"seed": (0, 1, 2)})
    for result in sweep.results:
        result.metrics["personal/test/loss"] = np.ones((2, CLIENTS))
    assert module.diverged(sweep) == 0
    sweep.results[1].metrics["personal/test/loss"][-1, 2] = np.nan
    assert module.diverged(sweep) == 1
    sweep.results[1].size["test"][2] = 0  # a client without examples has no loss
    assert module.diverged(sweep) == 0
    nan, base = float("nan"), module.SCALES["small"]
    lines = [
        module.Line("A", "lr 1", 60.0, 1.0, nan, nan, 2, "[0]"),
        module.Line("B", "lr 1", 80.0, 1.0, 0.5, 70.0, 0, "[0]"),
        module.Line("C", "lr 1", 70.0, 1.0, nan, 75.0, 0, "[0]"),
    ]
    text = module.markdown(lines, base, load("shared.participation").Part(50.0, 31.5))
    assert "mnist:every=10, 20 rounds; clients that took part: 31.5 of 50" in text
    assert text.index("| B |") < text.index("| C |") < text.index("| A |")
    assert "| C | lr 1 | 70.00 ± 1.00 |  | 75.00 | 2, 1 |" in text
    assert "| nan | 3, 3 |" in text
    assert "rankings: 0.33" in text
    assert "did not end finite: A (2)" in text


def test_deviations_are_those_of_the_last_round_by_model_lambda_and_metric():
    module = load("deviations")
    sweep = made({"seed": (0, 1, 2)})
    forms = [form for forms in module.PLACES.values() for form in forms]
    shown = {(s.run, s.model, s.how, s.metric): s for s in forms}
    rows = [*sweep.rows()]
    server = shown["pFedMe, code", "server", "", "accuracy"]
    means = [last(r, "server/test/accuracy").mean() for r in sweep.results]
    assert module.number(rows, server) == pytest.approx(
        (np.mean(means), np.std(means, ddof=1))
    )
    oracle = shown["APFL", "mixture", "oracle", "accuracy"]
    best = [100 * r.path["test/accuracy"].max(1).mean() for r in sweep.results]
    assert module.number(rows, oracle)[0] == pytest.approx(np.mean(best))
    validated = shown["APFL", "mixture", "validation", "accuracy"]
    assert module.number(rows, validated)[0] < np.mean(best)
    ece = shown["FedAvg", "personal", "", "ece_batchwise"]
    errors = [r.metrics["personal/test/ece_batchwise"][-1] for r in sweep.results]
    assert module.number(rows, ece)[0] == pytest.approx(np.mean(errors))
    text = module.markdown({"SCAFFOLD": rows}).splitlines()
    assert len(text) == 3  # the other form of the place is not finished
    mean, std = module.number(rows, shown["SCAFFOLD", "personal", "", "accuracy"])
    assert text[-1] == f"| SCAFFOLD | paper | accuracy | {mean:.2f} | {std:.2f} |"
    lost = [row | {"metric": "loss", "mean": None} for row in rows]
    (line,) = module.markdown({"SCAFFOLD": rows + lost}).splitlines()[2:]
    assert "| paper (a client's loss is not finite) | accuracy |" in line
