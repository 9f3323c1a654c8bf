"""The command line, from `run` to `export`."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tiny
from pfljax.cli import parser
from pfljax.runs import components, settings
from pfljax.runs.folder import read_json, read_partition, write_json
from pfljax.simulate import run
from pfljax.simulate.federation import build_federation

HELP = """
import sys, time
from pfljax.cli.main import main
sys.argv = ["pfljax", "--help"]
main()
heavy = {"jax", "flax", "tensorflow_datasets", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
assert time.process_time() < 1, time.process_time()
"""


ENDS = """
import gc, sys
from pfljax.cli.main import main
try:
    main()
finally:
    print(gc.get_freeze_count() > len(sys.modules))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return tiny.finished(tmp_path_factory.getbasetemp())


def times(folder):
    """When each file of a folder was written."""
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}


def json_of(path):
    return read_json(path)


def test_run_says_what_came_out(done):
    folder, out, errors = done
    accuracy = np.load(folder / "clients.npz")["personal/test/accuracy"][-1]
    assert out == (
        f"superfed: mean test accuracy of the clients' models {accuracy.mean():.4f}, "
        f"round 4\n{folder}/report.html\n"
    )
    devices, split, sees, *lines = errors.splitlines()
    assert devices.startswith("pfljax: ")
    assert "validate on 0.1 " in split
    assert sees.endswith(" x / 16")
    named = [line.split(":")[0] for line in lines]
    assert named == [f"superfed start=0.0, seed 0, round {n}/4" for n in (2, 4)]
    assert f"accuracy {accuracy.mean():.4f}, " in lines[1]
    assert lines[1].endswith(" clients/s, 0 s left")


def test_files_of_a_run(done):
    folder = done[0]
    names = {p.name for p in folder.iterdir()}
    assert names == {
        ".lock", "config.json", "environment.json", "partition.npz", "metrics.jsonl",
        "clients.npz", "summary.json", "checkpoints", "report.html",
    }  # fmt: skip
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"2", "4"}
    page = (folder / "report.html").read_text()
    assert "data:image/svg+xml;base64," in page
    environment = json_of(folder / "environment.json")
    assert {"python", "packages", "devices", "command", "width"} <= set(environment)
    assert environment["seconds"] > 0
    assert environment["peak_bytes"] > 1e7  # a process with JAX


@pytest.mark.usefixtures("undrawn")
def test_the_config_is_resolved_and_reruns_the_run(done, tmp_path):
    folder, again = done[0], tmp_path / "again"
    config = json_of(folder / "config.json")
    assert config["algorithm"] == "superfed:mixing=model,mu=0.01,nu=2.0,start=0.0"
    code, _, errors = tiny.main(
        "run", "--config", folder / "config.json", "--out", again
    )
    assert code == 0, errors
    tiny.assert_same_run(folder, again)
    config["out"] = str(again)
    assert json_of(again / "config.json") == config


def test_the_partition_is_the_federations(done):
    federation, unseen = build_federation(tiny.SEEN)
    manifest = read_partition(done[0])
    about = {"unseen": unseen.manifest, "given": False, "input_shape": [8, 8, 1]}
    assert manifest.items() >= (federation.manifest | about).items()
    assert len(manifest["sha256"]) == 64
    assert sorted(manifest["clients"] + unseen.manifest["clients"]) == list(range(6))


def test_run_again_does_nothing(done):
    folder = done[0]
    before = times(folder)
    again = tiny.main("run", *tiny.options(tiny.SEEN.replace(out=str(folder))))
    assert again == (0, f"{folder} is finished; see {folder}/report.html\n", "")
    assert tiny.main("resume", folder) == again
    assert times(folder) == before


@pytest.mark.usefixtures("undrawn")
def test_a_lost_page_is_written_again(done, tmp_path):
    folder = shutil.copytree(done[0], tmp_path / "run")
    (folder / "report.html").unlink()
    code, _, errors = tiny.main("resume", folder)
    assert code == 0, errors
    assert (folder / "report.html").exists()
    assert "is finished" in tiny.main("resume", folder)[1]


@pytest.mark.parametrize("finished", [True, False])
def test_run_with_another_config_refuses(done, tmp_path, finished):
    folder = done[0] if finished else tiny.unfinished(done[0], tmp_path / "half")
    before = times(folder)
    other = tiny.SEEN.replace(
        out=str(folder), lr=0.5, algorithm="superfed:start=0.0,mu=1.0"
    )
    code, out, errors = tiny.main("run", *tiny.options(other))
    assert (code, out) == (2, "")
    assert f"{folder} holds a run with another config (algorithm: superfed:" in errors
    assert "-> superfed:mixing=model,mu=1.0,nu=2.0,start=0.0; " in errors
    assert "lr: 0.05 -> 0.5); choose another --out\n" in errors
    assert times(folder) == before


@pytest.mark.parametrize("how", [pytest.param("run", marks=pytest.mark.slow), "resume"])
@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_run_goes_on(done, tmp_path, how):
    half = tiny.unfinished(done[0], tmp_path / "half")
    job = tiny.SEEN.replace(out=str(half))
    args = tiny.options(job) if how == "run" else [half]
    code, out, errors = tiny.main(how, *args)
    assert code == 0, errors
    assert "round 4\n" in out
    *_, going_on, last = errors.splitlines()
    assert going_on == "pfljax: resuming from round 2 of 4"
    assert last.startswith("superfed start=0.0, seed 0, round 4/4: ")
    tiny.assert_same_run(done[0], half)
    assert (half / "report.html").exists()


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A run of APFL of 4 rounds, and another of 3."""
    folder = tmp_path_factory.mktemp("longer")
    whole, half = folder / "whole", folder / "half"
    job = tiny.TINY.replace(algorithm="apfl")
    for path, rounds in ((whole, 4), (half, 3)):  # evaluated at 2, 4; at 2 and at 3
        job = job.replace(out=str(path), rounds=rounds)
        with tiny.undrawn():
            assert tiny.main("run", *tiny.options(job))[0] == 0
    return whole, half


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "resume"])
@pytest.mark.usefixtures("undrawn")
def test_a_finished_run_goes_on_for_more_rounds(longer, tmp_path, how):
    whole, half = longer[0], shutil.copytree(longer[1], tmp_path / "half")
    job = tiny.TINY.replace(algorithm="apfl", out=str(half))
    args = tiny.options(job) if how == "run" else [half, "--rounds", 4]
    assert job.rounds == 4
    code, out, errors = tiny.main(how, *args)
    assert code == 0, errors
    assert "round 4\n" in out
    assert "pfljax: resuming from round 3 of 4" in errors.splitlines()
    tiny.assert_same_run(whole, half)
    assert json_of(half / "config.json")["rounds"] == 4
    assert (half / "report.html").exists()
    assert "is finished" in tiny.main("resume", half)[1]


@pytest.mark.slow
def test_a_refused_resume_leaves_a_finished_run_as_it_is(longer, tmp_path):
    half = shutil.copytree(longer[1], tmp_path / "half")
    file = half / "clients.npz"
    file.write_bytes(file.read_bytes()[:100])
    before = times(half)
    code, _, errors = tiny.main("resume", half, "--rounds", 4)
    assert code == 2
    assert f"{file} is damaged" in errors
    assert times(half) == before


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "difference"), [(2, "3 -> 2"), (0, "3 -> 0")])
def test_a_run_has_no_fewer_rounds_than_are_done(longer, rounds, difference):
    before = times(longer[1])
    code, out, errors = tiny.main("resume", longer[1], "--rounds", rounds)
    assert (code, out) == (2, "")
    assert (
        f"another config (rounds: {difference}); 3 rounds are done, and only" in errors
    )
    assert times(longer[1]) == before


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_too_many_rounds_can_be_taken_back(longer, tmp_path):
    half = shutil.copytree(longer[1], tmp_path / "half")
    config = json_of(half / "config.json")
    config["rounds"] = 5000
    write_json(half / "config.json", config)
    (half / "summary.json").unlink()
    code, _, errors = tiny.main("resume", half, "--rounds", 4)
    assert code == 0, errors
    tiny.assert_same_run(longer[0], half)


def test_more_rounds_of_a_method_that_goes_by_them_are_refused(done):
    before = times(done[0])
    code, out, errors = tiny.main("resume", done[0], "--rounds", 6)
    assert (code, out) == (2, "")
    assert errors == (
        f"pfljax: {done[0]} holds a run with another config (rounds: 4 -> 6); superfed "
        "depends on the number of rounds; choose another --out\n"
    )
    assert times(done[0]) == before


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(done, tmp_path):
    half = tmp_path / "half"
    tiny.unfinished(done[0], half)
    (half / "checkpoints" / "4").mkdir()
    code, _, errors = tiny.main("resume", half)
    assert code == 0, errors
    assert f"{half}/checkpoints/4 is damaged (" in errors
    assert "resuming from the checkpoint of round 2\n" in errors
    tiny.assert_same_run(done[0], half)


def test_broken_checkpoints_are_one_line(done, tmp_path):
    half = tiny.unfinished(done[0], tmp_path / "half")
    for path in (half / "checkpoints" / "2").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    code, _, errors = tiny.main("resume", half)
    assert code == 2
    assert errors.splitlines()[-1].startswith("pfljax: none of the checkpoints in ")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_report_compares_runs(done, tmp_path):
    other = tiny.SEEN.replace(seed=1, out=str(tmp_path / "other"))
    run.run(other, quiet=True, report=False)
    place = tmp_path / "comparison"
    code, out, errors = tiny.main("report", done[0], other.folder, "--out", place)
    assert code == 0, errors
    assert "superfed start=0.0 " in out
    assert out.endswith(f"{place}/comparison.html\n")
    names = {path.name for path in place.iterdir()}
    assert names == {"comparison.html", "comparison.csv"}


def test_report_refuses_unfinished_and_equal_runs(done, tmp_path):
    half = tiny.unfinished(done[0], tmp_path / "half")
    code, _, errors = tiny.main("report", done[0], half, "--out", tmp_path / "out")
    assert (code, errors.count("\n")) == (2, 1)
    assert "half is not finished; resume it" in errors
    code, _, errors = tiny.main("report", done[0], done[0], "--out", tmp_path / "out")
    assert (code, errors.count("\n")) == (2, 1)
    assert "same settings and seed 0; give one of them" in errors


@pytest.mark.parametrize("kind", components.KINDS)
def test_list_names_everything(kind):
    plurals = {"loss": "losses", "metrics": "metrics", "augment": "augmentations"}
    code, out, _ = tiny.main("list", plurals.get(kind, f"{kind}s"))
    assert code == 0
    # Options stand behind spaces, families in brackets above their methods.
    lines = [line for line in out.splitlines() if line and line[0] not in " ["]
    assert sorted(line.split()[0] for line in lines) == sorted(
        components.find_factories(kind)
    )
    assert all(len(line.split()) > 2 for line in lines)


def test_help_is_quick_and_loads_nothing():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: pfljax" in done.stdout
    blocks = done.stdout.split("\n\n")[2:-1]
    listed = {}
    for block in blocks:
        heading, *lines = block.splitlines()
        names = [line.split()[0] for line in lines if line[2] != " "]
        listed[heading] = names
    assert listed == {
        "Run:": ["run", "resume", "sweep", "compare"],
        "Look at runs:": ["report", "landscape", "export", "predict"],
        "Names and data:": ["list", "inspect", "prepare"],
        "Check:": ["conformance", "bench"],
    }
    assert "pfljax run --algorithm ditto:lam=1.0" in done.stdout


def test_python_ends_without_a_search_of_all_objects():
    command = [sys.executable, "-c", ENDS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True", done.stderr


def test_pfljax_alone_prints_the_same_overview():
    assert tiny.main() == tiny.main("-h") == (0, f"{parser.overview()}\n", "")


def test_help_of_run_has_every_setting_and_the_options_of_the_method():
    code, out, _ = tiny.main("run", "--algorithm", "ditto", "--help-all")
    assert code == 0
    for option in ("--cohort", "--test-from", "--batch-size"):
        assert option in out
    headings = re.findall(r"^\W+ (\w+) options \W+$", out, re.M)
    assert headings == [*settings.HELP, "processes"]
    assert ": ditto:lam=0.1,personal_epochs=None\n" in out


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_compare_says_which_is_better_and_goes_on(tmp_path, monkeypatch):
    def blank(folder):
        (folder / "report.html").write_text("")

    monkeypatch.setattr("pfljax.report.write_run_report", blank)
    small = tiny.TINY.replace(algorithm="fedavg", model="logistic", rounds=1)
    place = tmp_path / "compared"
    flags = tiny.options(small.replace(out=str(place), seed=3))
    args = "compare", "ditto:lam=1.0", "--seeds", 2, "--no-local", *flags
    code, out, errors = tiny.main(*args)
    assert code == 0, errors
    runs = sorted(
        str(p.parent.relative_to(place)) for p in place.glob("*/*/summary.json")
    )
    assert runs == [
        "ditto-lam=1.0/s3", "ditto-lam=1.0/s4",
        "fedavg-finetune=20/s3", "fedavg-finetune=20/s4",
    ]  # fmt: skip
    assert "ditto lam=1.0" in out
    assert "fedavg finetune=20" in out
    named = [f"{run}, seed 3" for run in ("ditto lam=1.0", "fedavg finetune=20")]
    assert all(name in errors for name in named)
    logs = {log: log.stat().st_mtime_ns for log in place.glob("*/*/metrics.jsonl")}
    assert tiny.main(*args)[:2] == (0, out)
    assert logs == {log: log.stat().st_mtime_ns for log in logs}


def test_help_of_compare_has_the_settings_but_no_method_s():
    code, out, _ = tiny.main("compare", "--help")
    assert code == 0
    for option in ("--seeds", "--no-local", "--no-finetuned", "--cohort", "--seed"):
        assert option in out
    assert "--server-optimizer" not in out
    assert "--server-optimizer" in tiny.main("compare", "--help-all")[1]
    for option in ("--algorithm", "--label"):
        assert f"{option} " not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands_and_options(shell):
    code, out, _ = tiny.main("--tyro-print-completion", shell)
    assert not code
    words = "landscape", "tolerance", "batch-size", "datasets", "compare", "seeds"
    for word in words:
        assert word in out


@pytest.mark.slow
def test_an_error_in_a_process_is_one_line_and_exit_code_2(tmp_path):
    done = tiny.command_line("run", "--cohort", "50", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr == (
        "pfljax: cohort is 50, but there are 20 clients; choose cohort <= 20\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_sweep_resumes_and_is_reported_again(tmp_path):
    small = tiny.TINY.replace(algorithm="ditto", model="logistic", rounds=1)
    place = tmp_path / "grid"
    over = "--over", "lam", "0.0", "0.5", "--over", "seed", "0", "1"
    args = "sweep", *over, *tiny.options(small.replace(out=str(place)))
    code, out, errors = tiny.main(*args, "--tables")
    assert code == 0, errors
    assert "lam=0.5 " in out
    assert "Validation examples choose lam=" in " ".join(out.split())
    assert out.endswith(f"{place}/comparison.html\n")
    runs = {run: times(run) for run in place.glob("*/s*")}
    assert len(runs) == 4
    assert tiny.main(*args)[:2] == (0, out)
    code, again, errors = tiny.main(
        "report", place, "--columns", "seed", "--out", tmp_path / "page"
    )
    assert code == 2  # the seeds of a point are one method
    assert "lam" in errors or "seed" in errors
    code, again, errors = tiny.main("report", place, "--out", tmp_path / "page")
    assert code == 0, errors
    assert again.splitlines()[:-1] == out.splitlines()[:-1]
    assert {run: times(run) for run in runs} == runs
    page = (tmp_path / "page" / "comparison.html").read_text("utf-8")
    assert 'id="accuracy"' in page or "Test accuracy of the main models" in page


MISTAKES = [
    # names
    (["rnu"], "unknown command 'rnu'; known: bench, compare, conformance, export"),
    (["list", "methods"], "unknown kind 'methods'; did you mean 'modes'?"),
    (["--verion"], "unknown option '--verion'; known: --help, --tyro-print-completion"),
    (["--help-all"], "--version; did you mean '--help'?"),
    (["--tyro-print-completion", "sh"], "is 'sh'; known: bash, zsh, tcsh, fish"),
    (["compare", "dito"], "unknown algorithm 'dito'; did you mean 'ditto'?"),
    (["compare", "a", "--no-local", "b"], "b; methods come first: pfljax compare A B"),
    (["compare", "ditto:mu=1"], "unknown parameter 'mu'; known: lam, personal"),
    (
        ["sweep", "--over", "mu", "1"],
        "unknown setting or option of fedavg 'mu'; known: ",
    ),
    # options
    (["run", "--bogus"], "Unrecognized options: --bogus; see `pfljax run --help`"),
    (["run", "--cohrot", "3"], "--cohrot, 3 (did you mean --cohort?); see"),
    (["compare", "fedper", "--algorithm", "ditto"], "options: --algorithm"),
    (
        ["run", "--algorithm=apfl", "--adaptive"],
        "write --algorithm apfl:adaptive=VALUE",
    ),
    (["sweep", "--algorithm", "ditto:lam=1.0", "--personal_epochs=2"], "write --al"),
    # values
    (["run", "--rounds", "many"], "--rounds is 'many'; expected a whole number; see"),
    (["run", "--lr=fast"], "--lr is 'fast'; expected a number; see"),
    (["run", "--devices", "all"], "is 'all'; expected a whole number or None; see"),
    (["report", "a", "--target", "1", "b"], "--target is '1', 'b'; expected a number;"),
    (["run", "--algorithm"], "--algorithm has no value; give"),
    (["resume"], "Missing from pfljax resume: PATH"),
    (["run", "--model= "], "model: ' ' has no name; expected name or name:key"),
    (["run", "--rounds", "0"], "rounds is 0; expected at least 1"),
    (["compare"], "no method is given; expected pfljax compare NAME ..., such as"),
    (["compare", *["ditto:lam=1"] * 2], "ditto:lam=1 is given twice; give it once"),
    (["compare", "ditto", "--seeds", "0"], "--seeds is 0; expected at least 1"),
    (["compare", "ditto", "--cohort", "21"], "but there are 20 clients"),
    (["sweep"], "--over is missing"),
    (["sweep", "--over", "lr"], "--over lr has no value; give"),
    (["sweep", *["--over", "lr", "1"] * 2], "--over lr is given twice"),
    (["sweep", "--over", "lr", "1", "--cohort", "21"], "but there are 20 clients"),
    (["prepare", "digits"], "'digits' needs no preparing"),
    # folders and files
    (["resume", "."], ". is not a run folder: it has no config.json"),
    (["export", "."], ". is not a run folder: it has no config.json"),
    (["report", "none"], "none is not a run folder"),
    (["run", "--config", ".", "--rounds", "3"], ". is no file; give a .toml file"),
    (["run", "--rounds", "3", "no.toml"], "a file of settings comes first: pfljax run"),
]


@pytest.mark.parametrize(("args", "message"), MISTAKES)
def test_mistakes_are_one_line(args, message):
    code, out, errors = tiny.main(*args)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("pfljax: ")
    assert message in errors


@pytest.mark.parametrize("no", ["", "0"])
def test_a_trace_that_is_not_asked_for_is_not_shown(no, monkeypatch):
    monkeypatch.setenv("PFLJAX_TRACE", no)
    code, _, errors = tiny.main("list", "models", "--bogus")
    assert (code, errors.count("\n")) == (2, 1)


def test_a_trace_that_is_asked_for_is_shown(monkeypatch):
    monkeypatch.setenv("PFLJAX_TRACE", "1")
    with pytest.raises(ValueError, match="Unrecognized options: --bogus"):
        tiny.main("list", "models", "--bogus")
