"""The scripts of experiments/: options, exit codes, what is left out, who took part."""

import csv
import importlib
import sys

import jax
import numpy as np
import pytest

import tiny
from pfljax.data import MissingDataset
from pfljax.evaluation.over_clients import FIGURES
from pfljax.runs import config
from pfljax.runs.folder import FolderError, write_json
from pfljax.simulate import simulation
from pfljax.simulate.federation import build_federation

MISSING = MissingDataset("data set 'mnist' is not prepared; run: pfljax prepare mnist")


@pytest.fixture(autouse=True)
def no_trace(monkeypatch):
    monkeypatch.delenv("PFLJAX_TRACE", raising=False)


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """A function that calls a script: exit code, stdout, stderr."""

    def called(name, *options):
        module = importlib.import_module(name)
        script = importlib.import_module("shared.script")
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
        monkeypatch.chdir(tmp_path)
        try:
            if "table" in name:
                module.main("A table.", "runs/table", module.COLUMNS)
            else:
                script.run(module.main)
            code = 0
        except SystemExit as error:
            code = error.code
            if isinstance(code, str):  # as the interpreter does
                print(code, file=sys.stderr)
                code = 1
        return code, *capsys.readouterr()

    return called


def instead(monkeypatch, name, error):
    """Lets what the script runs raise this."""
    module = importlib.import_module(name)

    def fail(*args, **kwargs):
        raise error

    for runner in ("sweep", "run"):
        if hasattr(module, runner):
            monkeypatch.setattr(module, runner, fail)


def written(experiment, over, *, out, quiet):
    """A sweep whose runs all have an accuracy of a half."""
    evaluated = (("personal", ""), ("server", ""), ("mixture", "oracle"))
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "sweep.csv", "w", newline="") as file:
        columns = importlib.import_module("shared.swept").COLUMNS
        writer = csv.DictWriter(file, ["seed", *columns, *FIGURES])
        writer.writeheader()
        for seed in over["seed"]:
            for at, (model, lam) in enumerate(evaluated):
                row = {"seed": seed, "round": experiment.rounds, "evaluated": model}
                row |= {"lambda": lam, "split": "test", "metric": "accuracy"}
                writer.writerow(row | {"mean": 0.5 + at / 10, "std": 0.1})
    saved = {"experiment": config.to_dict(experiment), "over": over}
    write_json(out / "sweep.json", saved)


@pytest.fixture
def cells(monkeypatch):
    """Cells that are refused, by label, and the experiments of the others."""
    protocol, refused, ran = importlib.import_module("protocol"), {}, []

    def sweep(experiment, over, **kwargs):
        if experiment.label in refused:
            raise refused[experiment.label]
        ran.append(experiment)
        written(experiment, over, **kwargs)
        return protocol.swept.Sweep(experiment, over, [])

    monkeypatch.setattr(protocol, "sweep", sweep)
    return refused, ran


ASKED = ("--columns", "MNIST-K50", "MNIST-K100", "--only", "FedAvg", "APFL")


@pytest.mark.slow
def test_a_table_has_what_was_asked_for_and_nothing_else(call, cells, tmp_path):
    _, ran = cells
    code, out, _ = call("table1", *ASKED, "SuPerFed-MM", "--rounds", "3")
    assert code == 0
    assert {e.rounds for e in ran} == {3}
    assert out.count("### ") == 2
    assert "### MNIST-K100" in out
    again = ("--table", "--columns", "MNIST-K50", "--only", "APFL", "SuPerFed-MM")
    code, out, _ = call("table1", *again, "--rounds", "3")
    assert (code, len(ran)) == (0, 6)
    assert "### MNIST-K50, accuracy, 3 rounds" in out
    assert "MNIST-K100" not in out
    assert "FedAvg" not in out
    assert "| APFL |" in out
    assert " of 50, " in out  # of MM, since mixing
    folder = "runs/table-small-3-rounds"  # the scale's own rounds have another
    lines = (tmp_path / folder / "table.csv").read_text().splitlines()
    assert {line.split(",")[2] for line in lines[1:]} == {"APFL", "SuPerFed-MM"}
    one = ("--columns", "MNIST-K50", "--only", "APFL", "--rounds", "3")
    _, out, _ = call("table1", *one)
    assert "### MNIST-K100" in out  # what was finished before keeps its place
    assert "| FedAvg |" in out
    nothing = ("--table", "--columns", "CIFAR10-K50", "--only", "pFedMe")
    code, _, errors = call("table1", *nothing, "--dataset", "digits:every=2")
    assert (code, errors) == (
        1,
        "no run is finished in runs/table-small-digits_every=2\n",
    )
    more = ("--rounds", "3", "--dataset", "emnist/letters", "--authors-settings")
    _, _, errors = call("table1", *nothing, *more)
    assert errors.endswith("small-3-rounds-emnist_letters-authors-settings\n")
    _, _, errors = call("table1", *nothing, *more, "--out", "own")
    assert errors == "no run is finished in own\n"


def test_what_was_left_out_is_the_last_line_and_the_exit_code(call, cells):
    refused, _ = cells
    refused["APFL"] = FolderError("x holds another sweep (rounds: 10 -> 3)")
    refused["FedAvg"] = MemoryError("one run needs 9 GiB")
    code, out, errors = call("table1", *ASKED[:2], *ASKED[3:], "FedPer")
    assert code == 1
    assert "| FedPer |" in out
    assert "holds another sweep" in errors
    assert "needs 9 GiB" in errors
    last = errors.splitlines()[-1]
    assert last == "left out: MNIST-K50, FedAvg; MNIST-K50, APFL"
    alone = ("--seeds", "7", "--out", "none")
    code, out, errors = call("table1", *ASKED[:2], *ASKED[3:], *alone)
    assert (code, out) == (1, "")
    assert errors.splitlines()[-1] == last


def test_an_error_of_the_user_is_one_line(call, monkeypatch):
    script = "fig3"
    instead(monkeypatch, script, MISSING)
    code, _, errors = call(script)
    assert (code, errors) == (2, f"{script}.py: {MISSING}\n")
    instead(monkeypatch, script, MemoryError("one run needs 9 GiB"))
    assert call(script)[0] == 2
    monkeypatch.setenv("PFLJAX_TRACE", "1")
    with pytest.raises(MemoryError):
        call(script)


def test_tables_keep_what_was_tuned_before_on_the_same_seeds(call, monkeypatch):
    module = importlib.import_module("tuned")

    def made(base, label, seeds, out):
        out.mkdir(exist_ok=True)
        mean = 60.0 + len(label) + 10 * len(seeds)
        of = f"{base.rounds} rounds, {seeds}"
        return module.Line(label, "lr .1, x", mean, 1.0, np.nan, 60.0, 0, of)

    monkeypatch.setattr(module, "line", made)
    monkeypatch.setattr(
        module, "took_part", lambda base, seeds: participation.Part(5, 5)
    )
    participation = importlib.import_module("shared.participation")
    tables = {}
    for seeds in (["0"], ["1", "2"]):
        for label in ("FedPer", "Ditto", "FedPer"):
            options = ("--only", label, "--out", "tuned", "--seeds", *seeds)
            code, out, _ = call("tuned", *options)
            assert code == 0
            tables.setdefault((label, len(seeds)), []).append(out)
    assert "| FedPer | lr .1, x | 76.00" in tables["Ditto", 1][0]
    assert "| Ditto |" in tables["FedPer", 1][1]
    assert "| Ditto |" not in tables["FedPer", 2][0]  # of another seed
    assert tables["FedPer", 2][1].count("| FedPer |") == 1
    assert "| Ditto | lr .1, x | 85.00" in tables["FedPer", 2][1]
    again = call("tuned", "--only", "FedPer", "--out", "tuned", "--seeds", "0")
    assert "| Ditto | lr .1, x | 75.00" in again[1]  # nothing was lost
    options = ("--only", "FedAvg", "--out", "tuned", "--seeds", "1", "2")
    assert "Ditto" not in call("tuned", *options, "--rounds", "3")[1]


def test_figure_a1_is_of_the_first_seed_and_its_table_of_all(
    call, monkeypatch, tmp_path
):
    module, ran, drawn = importlib.import_module("figA1"), [], []

    def measured(done, plane):
        return module.Measured(*[10.0 * done.seed + plane] * 8)

    monkeypatch.setattr(module, "run", ran.append)
    monkeypatch.setattr(module.landscape, "Finished", lambda _: ran[-1])
    monkeypatch.setattr(module, "surface", lambda done, _: len(done.algorithm.args))
    monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr(module.landscape, "draw_planes", drawn.append)
    monkeypatch.setattr(module, "save_figure", lambda figure, path: None)
    (tmp_path / "a1").mkdir()
    code, out, _ = call("figA1", "--seeds", "1", "3", "--out", "a1")
    assert code == 0
    assert [e.seed for e in ran] == [1, 1, 1, 3, 3, 3]
    assert len({e.out for e in ran}) == 6
    assert len(drawn) == 1
    options = len(ran[0].algorithm.args)
    assert f"| FedAvg | {20 + options:.3f} ± 14.142 |" in out
    assert (tmp_path / "a1/table.md").read_text() in out
    assert "mnist, 500 clients, 50 rounds, seeds 1, 3" in out
    below = "none below 0"
    for wrong, says in (((), below), (("0", "-1"), below), (("0", "0"), "seed is")):
        code, _, err = call("figA1", "--seeds", *wrong, "--out", "a1")
        assert (code, len(ran)) == (2, 6)
        assert says in err
    assert call("figA1", "--points", "1")[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_who_took_part_is_what_a_run_would_draw(start):
    took_part = importlib.import_module("shared.participation").took_part
    e = tiny.TINY.replace(cohort=2, rounds=3, algorithm=f"superfed:start={start}")
    federation, _ = build_federation(e)
    sim = simulation.simulation(e, federation)
    ever, mixed = [], []
    for seed in (0, 1):
        state = sim.init(jax.random.key(seed))
        for _ in range(e.rounds):
            state, _ = sim.rounds(state, federation.train, np.int32(1))
        ever.append(int((state.participations > 0).sum()))
        mixed.append(int(state.clients.mixed.sum()))
    assert took_part(e, (0, 1)) == (6.0, np.mean(ever), np.mean(mixed))
    assert (mixed == ever) == (start == 0)
    others = took_part(e.replace(algorithm="fedavg"), (0, 1))
    assert others[:2] == (6.0, np.mean(ever))
    assert np.isnan(others.mixed)
    natural = took_part(e.replace(clients=None, partition="natural"), (0,))
    assert np.isnan(natural).all()
    assert natural.sentence() == ""
