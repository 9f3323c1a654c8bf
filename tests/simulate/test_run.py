"""The files that a run writes, and when it refuses to resume."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

import tiny
from pfljax import Experiment, data, engine, models
from pfljax.algorithms.fedavg import fedavg
from pfljax.channel import count_traffic
from pfljax.runs import folder
from pfljax.runs.folder import FolderError, read_arrays, write_arrays
from pfljax.simulate import components, export, loop, simulation
from pfljax.simulate import run as experiment
from pfljax.simulate.federation import build_federation


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def lines(done):
    return [json.loads(line) for line in (done / "metrics.jsonl").open()]


@pytest.fixture(scope="module")
def summary(done):
    return json.loads((done / "summary.json").read_text())


@pytest.fixture(scope="module")
def arrays(done):
    with np.load(done / "clients.npz") as file:
        return {name: array.astype(float) for name, array in file.items()}


def wanted(records, **fields):
    """The records of an evaluation with these fields."""
    return [r for r in records if all(r[k] == v for k, v in fields.items())]


def test_the_summary_has_the_flops_of_a_step(summary):
    """Of 20 examples: forward, and both gradients but for that of the pixels."""
    forward = 64 * 8 + 8 * 10
    products = 2 * 20 * (3 * forward - 64 * 8)
    # The rest is of units and parameters.
    assert products < summary["step_flops"] < 2 * products


def run(job, *args, **given):
    return experiment.run(job, *args, **given, quiet=True, report=False)


def test_a_line_a_round_and_an_evaluation_every_other(lines):
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert [line["round"] for line in lines if "evaluations" in line] == [2, 4]
    assert all(np.isfinite(line["train_loss"]) for line in lines)


def test_bytes_are_those_of_the_cohort_so_far(lines, summary):
    federation, _ = build_federation(tiny.SEEN)
    sim = simulation.simulation(tiny.SEEN, federation)
    traffic = count_traffic(sim.setting.algorithm, sim.task, 5, (8, 8, 1))
    for line in lines:
        assert line["bytes_down"] == 3 * traffic.down * line["round"]
        assert line["bytes_up"] == 3 * traffic.up * line["round"]
    assert summary["traffic"] == {
        "down_per_client": traffic.down, "up_per_client": traffic.up,
        "down_total": lines[-1]["bytes_down"], "up_total": lines[-1]["bytes_up"],
    }  # fmt: skip


def test_metrics_of_each_client(arrays):
    assert arrays["round"].tolist() == [2, 4]
    for model in ("personal", "server"):
        for split in ("test", "validation"):
            assert arrays[f"{model}/{split}/accuracy"].shape == (2, 5)
            assert arrays[f"unseen:{model}/{split}/ece"].shape == (2, 1)
    assert arrays["mixture/test/accuracy"].shape == (5, 11)
    np.testing.assert_allclose(arrays["mixture/lambda"], np.arange(11) / 10, rtol=1e-6)
    middle = arrays["mixture/test/accuracy"][:, 5]
    np.testing.assert_allclose(middle, arrays["personal/test/accuracy"][-1], rtol=1e-6)


def test_participations_are_what_was_drawn(arrays):
    federation, _ = build_federation(tiny.SEEN)
    sim = simulation.simulation(tiny.SEEN, federation)
    key = jax.random.key(tiny.SEEN.seed)
    drawn = [engine.draw(sim.setting, (), key, r) for r in range(4)]
    count = np.bincount(np.concatenate(drawn), minlength=5)
    assert arrays["participations"].tolist() == count.tolist()
    assert arrays["train_size"].tolist() == federation.train.size.tolist()


def test_records_agree_with_the_clients(lines, arrays):
    records = lines[3]["evaluations"]
    (record,) = wanted(records, model="personal", clients="all", split="test")
    values = arrays["personal/test/accuracy"][-1]
    assert record["count"] == 5
    np.testing.assert_allclose(record["metrics"]["accuracy"]["mean"], values.mean())
    np.testing.assert_allclose(record["metrics"]["accuracy"]["min"], values.min())
    newcomers = wanted(records, clients="unseen", split="test")
    assert [(r["model"], r["when"]) for r in newcomers] == [
        ("server", "after the newest broadcast"),
        ("personal", "after the newest broadcast"),
        ("personal", "after local training"),
    ]
    (some,) = wanted(records, model="server", clients="participants", split="test")
    assert some["count"] == 3


def test_a_run_gives_its_figures_by_name(done, arrays):
    result = run(tiny.SEEN.replace(out=str(done)))
    for model in ("personal", "server"):
        for metric in ("accuracy", "loss"):
            expected = arrays[f"{model}/test/{metric}"][-1].mean()
            named = getattr(getattr(result, model).test, metric)
            assert named == pytest.approx(expected, rel=1e-6)
    assert result.last.round == 4


def test_the_summary_tells_last_and_chosen_apart(lines, summary, arrays):
    assert summary["last"] == {"round": 4, "evaluations": lines[3]["evaluations"]}
    on_validation = arrays["personal/validation/accuracy"].mean(1)
    chosen = [2, 4][int(np.argmax(on_validation))]
    assert summary["chosen_on_validation"]["round"] == chosen
    on_test = arrays["personal/test/accuracy"].mean(1)
    np.testing.assert_allclose(summary["best_on_test"]["accuracy"], on_test.max())
    assert set(summary["mixture"]) == {
        "half", "chosen_on_validation", "oracle_chosen_on_test", "ensemble",
    }  # fmt: skip


@pytest.mark.slow
def test_a_missing_report_is_drawn_and_nothing_else(done, tmp_path):
    job = tiny.SEEN.replace(out=str(tmp_path), seed=1)
    run(job)
    before = (tmp_path / "metrics.jsonl").stat().st_mtime_ns
    assert not (tmp_path / "report.html").exists()
    experiment.run(job, quiet=True)
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "metrics.jsonl").stat().st_mtime_ns == before


@pytest.mark.slow
def test_seeds_differ(done, tmp_path):
    run(tiny.SEEN.replace(out=str(tmp_path), seed=2))
    first = (done / "metrics.jsonl").read_text()
    assert (tmp_path / "metrics.jsonl").read_text() != first


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_diverges_ends_with_a_report(tmp_path, capsys):
    job = Experiment(
        out=str(tmp_path), lr=1e38, rounds=2, eval_every=1, epochs=1, model="logistic"
    )
    result = experiment.run(job)
    errors = capsys.readouterr().err
    assert "loss nan" in errors
    assert "warning: " in errors.splitlines()[-1]
    assert errors.endswith("not finite; choose smaller rates, or less noise\n")
    assert result.rounds == 2
    assert '"train_loss": null' in (tmp_path / "metrics.jsonl").read_text()
    assert "has diverged: losses of" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_penalties_are_logged_beside_the_loss(tmp_path):
    job = tiny.TINY.replace(algorithm="fedprox:mu=1.0", out=str(tmp_path))
    run(job.replace(rounds=2))
    log = (tmp_path / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [list(line)[:3] for line in lines] == [
        ["round", "train_loss", "train_penalty"]
    ] * 2
    assert all(line["train_penalty"] > 0 for line in lines)


def test_a_changed_log_is_refused(done, tmp_path):
    half = tiny.unfinished(done, tmp_path / "half")
    (half / "metrics.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(FolderError, match="not what was written up to round 2"):
        run(tiny.SEEN.replace(out=str(half)))
    assert (half / "metrics.jsonl").read_text() == '{"round": 1}\n'


def edit_loss(folder):
    log = folder / "metrics.jsonl"
    log.write_text(log.read_text().replace('"train_loss": ', '"train_loss": 1', 1))


def swap_lines(folder):
    log = folder / "metrics.jsonl"
    first, second, *others = log.read_text().splitlines(keepends=True)
    log.write_text("".join([second, first, *others]))


def zero_accuracy(folder):
    file = folder / "clients.npz"
    arrays = read_arrays(file)
    arrays["personal/test/accuracy"] *= 0
    write_arrays(file, arrays)


def drop_metrics(folder):
    (folder / "clients.npz").unlink()


DAMAGE = [edit_loss, swap_lines, zero_accuracy, drop_metrics]


@pytest.mark.slow
def test_evaluations_are_a_file_each_until_a_run_ends(done, tmp_path):
    folder, lost = tmp_path / "run", tmp_path / "lost"

    def failing(round_, metrics, state):
        if round_ == 4:
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        run(tiny.SEEN.replace(out=str(folder)), callback=failing)
    files = sorted(file.name for file in (folder / ".evaluations").iterdir())
    assert files == ["2.npz"]
    assert not (folder / "clients.npz").exists()
    name = "personal/test/accuracy"
    first = read_arrays(folder / ".evaluations" / "2.npz")[name]
    np.testing.assert_array_equal(first, read_arrays(done / "clients.npz")[name][0])
    shutil.copytree(folder, lost)
    (lost / ".evaluations" / "2.npz").unlink()
    with pytest.raises(FolderError, match="not what was written up to round 2"):
        run(tiny.SEEN.replace(out=str(lost)))
    run(tiny.SEEN.replace(out=str(folder)))
    assert not (folder / ".evaluations").exists()
    tiny.assert_same_arrays(folder / "clients.npz", done / "clients.npz")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_log_that_is_not_the_checkpoints_is_refused(done, tmp_path, damage):
    half = tiny.unfinished(done, tmp_path / "half")
    damage(half)
    with pytest.raises(FolderError, match="not what was written up to round 2"):
        run(tiny.SEEN.replace(out=str(half)))


def test_a_log_without_checkpoints_is_not_overwritten(done, tmp_path):
    half = tiny.unfinished(done, tmp_path / "half")
    shutil.rmtree(half / "checkpoints")
    file = half / "metrics.jsonl"
    lines = [json.loads(line) | {"evaluations": []} for line in file.open()]
    log = "".join(f"{json.dumps(line)}\n" for line in lines)  # all are evaluated
    file.write_text(log)
    with pytest.raises(FolderError, match="has a log of 4 rounds, but no checkpoint"):
        run(tiny.SEEN.replace(out=str(half)))
    assert file.read_text() == log


def test_a_missing_summary_is_made_again(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    summary = folder / "summary.json"
    summary.unlink()
    run(tiny.SEEN.replace(out=str(folder)))
    assert summary.read_bytes() == (done / "summary.json").read_bytes()


def test_damaged_results_are_refused(done, tmp_path):
    half = tiny.unfinished(done, tmp_path / "half")
    (half / "clients.npz").write_bytes(b"PK")
    with pytest.raises(FolderError, match=r"clients\.npz is damaged"):
        run(tiny.SEEN.replace(out=str(half)))


SMALL = tiny.TINY.replace(
    algorithm="fedper", model="auto", rounds=2, cohort=2, dataset="mine"
)


def mine(seed=0, count=60):
    """A federation of 4 clients, examples [3] of 3 classes."""
    x = np.random.default_rng(seed).normal(size=(count, 3))
    arrays = data.from_arrays(x, np.arange(count) % 3, name="mine")
    return data.federate(arrays, "iid", num_clients=4, seed=0)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished run on clients of one's own."""
    job = SMALL.replace(out=str(tmp_path_factory.mktemp("own") / "run"))
    run(job, mine())
    return job


def test_a_finished_run_is_held_to_the_clients_given(own):
    assert run(own, mine()).rounds == 2
    refused_for_other_clients(own)


def test_an_unfinished_run_is_held_to_the_clients_given(own, tmp_path):
    shutil.copytree(own.out, tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    refused_for_other_clients(own.replace(out=str(tmp_path / "half")))


def refused_for_other_clients(own):
    assert folder.read_config(Path(own.out)).clients == 4
    with pytest.raises(FolderError, match="was started on other data"):
        run(own, mine(seed=1))  # the same labels
    with pytest.raises(FolderError, match="given its own federation in Python"):
        run(own.replace(clients=4))


@pytest.mark.parametrize("command", ["run --config {0}/config.json", "resume {0}",
                                     "export {0} --client 1"])  # fmt: skip
def test_the_command_line_says_what_python_must_give(own, command):
    code, _, errors = tiny.main(*command.format(own.out).split())
    assert (code, errors.count("\n")) == (2, 1)
    assert "was given its own federation in Python; give the same there: " in errors
    assert export.personal_model(own.out, 1, federation=mine())["head"]


def test_every_row_of_a_run_is_written_down(own):
    with np.load(f"{own.out}/partition.npz") as arrays:
        assert set(arrays) == {"manifest", "index", "official", "offset", "size"}
        assert sorted(arrays["index"]) == list(range(60))


class Own(nnx.Module):
    def __init__(self, rngs, classes=3):
        self.body = nnx.Linear(3, 4, rngs=rngs)
        self.head = nnx.Linear(4, classes, rngs=rngs)


@pytest.mark.slow
def test_a_model_of_ones_own_is_run(tmp_path):
    job, task = SMALL.replace(out=str(tmp_path)), models.task_from_nnx(Own, (3,))
    run(job, mine(), task=task)
    assert json.loads((tmp_path / "config.json").read_text())["model"] == "own"
    params = export.personal_model(tmp_path, 0, mine(), task)
    assert params["head"]["kernel"].shape == (4, 3)
    with pytest.raises(FolderError, match=r"its own task in Python; .* task=\.\.\."):
        export.personal_model(tmp_path, 0, mine())
    with pytest.raises(
        FolderError, match="has a model of your own, 'own'; use the task"
    ):
        export.load_task(tmp_path)
    code, _, errors = tiny.main("resume", tmp_path)
    assert (code, errors.count("\n")) == (2, 1)
    assert "its own federation and task in Python" in errors


def test_a_model_of_too_few_classes_is_refused(tmp_path):
    small = models.task_from_nnx(lambda rngs: Own(rngs, 2), (3,))
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for one example, exp"):
        run(SMALL.replace(out=str(tmp_path / "run"), model="mine"), mine(), task=small)


def test_calls_are_cut_at_evaluations_and_after_ten_seconds():
    job = Experiment(rounds=25, eval_every=10)
    # Nothing is known of the pace yet.
    assert loop.rounds_of_call(job, 10, 0, 0.0) == 1
    assert loop.rounds_of_call(job, 10, 1, 0.01) == 9
    assert loop.rounds_of_call(job, 10, 20, 0.01) == 5
    assert loop.rounds_of_call(job, 10, 10, 2.5) == 4
    assert loop.rounds_of_call(job, 10, 10, 60.0) == 1


@pytest.mark.slow
def test_channel_and_public_examples_reach_a_run(tmp_path, monkeypatch):
    """The server has its examples at `aggregate`; a clipped run differs."""
    sizes = []

    def counting(task, local):
        method = fedavg(task, local)

        def aggregate(server, uploads, cohort):
            sizes.append(cohort.public.examples.y.shape[0])
            return method.aggregate(server, uploads, cohort)

        return method._replace(aggregate=aggregate)

    monkeypatch.setattr(components.algorithms, "method", lambda name: counting)
    job = tiny.TINY.replace(algorithm="fedavg", rounds=1, public=0.1)
    plain = run(job.replace(out=str(tmp_path / "plain")))
    assert set(sizes) == {build_federation(job)[0].manifest["public_examples"]}
    channel = ["clip:norm=0.001", "gaussian:std=0.0"]
    clipped = run(job.replace(out=str(tmp_path / "clipped"), channel=channel))
    first, second = (each.last.records[0] for each in (plain, clipped))
    assert first["metrics"]["loss"]["mean"] != second["metrics"]["loss"]["mean"]
