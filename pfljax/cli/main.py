"""pfljax: personalised federated learning, simulated.

usage: pfljax COMMAND [OPTIONS]

  run      run an experiment, or go on with it: pfljax run --algorithm ditto --lam 1.0
  resume   go on with a run, or beyond its end: pfljax resume RUN --rounds 200
  sweep    seeds and settings, few programs:    pfljax sweep --over seed 0 1 2
  report   compare finished runs, or a sweep:   pfljax report RUN RUN --out FOLDER
  export   one client's model as an .npz:       pfljax export RUN --client 3
  landscape  what lies between a run's models:  pfljax landscape RUN --kind line
  list     names to choose from:                pfljax list algorithms
  prepare  make a data set ready:               pfljax prepare mnist
  bench    measure how fast this machine is:    pfljax bench W1 W3
  conformance  hold methods to the laws:        pfljax conformance ditto

`pfljax COMMAND --help` lists the options of a command. run and resume also take
--distributed, or --coordinator HOST:PORT --processes N --process I, on each host.
"""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from pfljax.runtime import errors

LANDSCAPES = ("line", "pairs", "plane", "hessian", "curvature", "training")


def main() -> None:
    """The entry point: an error of the user is one line and exit code 2."""
    command, *args = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print((__doc__ or "").strip())
        return
    with errors.in_one_line("pfljax"):
        if command not in COMMANDS:
            known = ", ".join(COMMANDS)
            raise ValueError(f"command {command!r} is unknown; known: {known}")
        COMMANDS[command](args)


def run(args: list[str]) -> None:
    """Runs an experiment given by options, or by the config.json of another run."""
    from pfljax.cli import options
    from pfljax.runs import checks
    from pfljax.runtime import processes

    place, args = processes.options(args)
    experiment = options.experiment(args)
    checks.check(experiment)
    _run(checks.resolve(experiment), place)


def resume(args: list[str]) -> None:
    """Goes on with the run in a folder, or beyond its end."""
    from pfljax.runs import folder
    from pfljax.runtime import processes

    parser = ArgumentParser("pfljax resume", description=resume.__doc__)
    parser.add_argument("out", metavar="run", help="a run folder")
    parser.add_argument("--rounds", type=int, help="in all, more than the run's own")
    place, args = processes.options(args)
    given = {k: v for k, v in vars(parser.parse_args(args)).items() if v is not None}
    there = folder.read_config(Path(given["out"]))
    _run(there.replace(**given), place, begun=True)


def _run(experiment: Any, place: dict[str, Any] | None, begun: bool = False) -> None:
    """Runs it; `place` is this process's among several (processes.connect)."""
    from pfljax.runtime import devices, processes

    path = Path(experiment.folder)
    page = path / "report.html"
    if place is not None:
        processes.connect(**place)
    if begun:  # maybe elsewhere
        experiment = experiment.replace(
            devices=devices.at_hand(experiment.machine.devices)
        )
    if processes.ask(_finished, path, experiment):
        _print(f"{path} is finished; see {page}")
        return
    use_compile_cache()
    from pfljax.simulate import evaluation
    from pfljax.simulate.run import run

    with errors.stopped_at_once():
        summary = run(experiment)
    accuracy = evaluation.headline(summary["last"]["evaluations"])
    _print(
        f"{experiment.method.algorithm}: accuracy {accuracy:.4f} on test rows, mean "
        "over clients, each by the model it uses, "
        f"round {summary['rounds']}; see {page}"
    )


def _finished(path: Path, experiment: Any) -> bool:
    """Whether nothing is left to do in the folder of this experiment."""
    from pfljax.runs import folder

    folder.check_python(path)
    if not folder.finished(path):
        return False
    folder.claim(path, experiment)
    same = (
        folder.read_config(path).evaluation.baseline == experiment.evaluation.baseline
    )
    return same and folder.complete(path, experiment.participation.rounds)


def _print(line: str) -> None:
    """One line on stdout, of process 0 if there are several."""
    from pfljax.runtime import processes

    if processes.first():
        print(line)


def use_compile_cache() -> None:
    """Keeps compiled programs between runs, unless JAX is told of a place itself."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        place = Path.home() / ".cache" / "pfljax" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def sweep(args: list[str]) -> None:
    """Runs every combination of the values, or what is left of them."""
    parser = ArgumentParser("pfljax sweep", description=sweep.__doc__)
    parser.epilog = "All options of `pfljax run` apply: pfljax run --help."
    parser.add_argument(
        "--over",
        nargs="+",
        action="append",
        required=True,
        metavar=("NAME", "VALUE"),
        help="a setting or option of the method, and its values; may be repeated",
    )
    given, rest = parser.parse_known_args(args)
    from pfljax.cli import options
    from pfljax.report import write_sweep_report

    over = options.values(given.over)
    experiment = options.experiment(rest, "pfljax sweep")
    if "--config" in rest and "--out" not in rest:  # the folder in it is a run's
        experiment = experiment.replace(out=None)
    dataset = experiment.data.dataset.name
    out = experiment.output.out or f"runs/{dataset}-{experiment.method.algorithm}-sweep"
    use_compile_cache()
    from pfljax.sweep import sweep as run_all

    with errors.stopped_at_once():
        run_all(experiment, over, out=out, quiet=False)
    print(write_sweep_report(out, out))
    print(f"see {out}/sweep.html; one row a run, round, model and metric: sweep.csv")


def report(args: list[str]) -> None:
    """Compares finished runs, seeds put together; or tells of one sweep."""
    parser = ArgumentParser("pfljax report", description=report.__doc__)
    parser.add_argument("runs", nargs="+", help="run folders, or that of a sweep")
    parser.add_argument("--out", default="runs/report", help="folder to write to")
    given = parser.parse_args(args)
    from pfljax.report import write_comparison, write_sweep_report

    folders = [Path(run) for run in given.runs]
    if len(folders) == 1 and (folders[0] / "sweep.json").exists():
        print(write_sweep_report(folders[0], Path(given.out)))
        print(f"see {given.out}/sweep.html")
        return
    print(write_comparison(folders, Path(given.out)))
    print(f"see {given.out}/comparison.html")


def export(args: list[str]) -> None:
    """Writes one client's personal model, or the server's, as an .npz."""
    parser = ArgumentParser("pfljax export", description=export.__doc__)
    parser.add_argument("run", help="a run folder")
    parser.add_argument(
        "--client",
        type=int,
        help="client number among those that train; none: the server. Clients held out "
        "(--unseen) have no state",
    )
    parser.add_argument("--out", help="file, else RUN/client-K.npz or RUN/server.npz")
    given = parser.parse_args(args)
    from pfljax.runs.folder import read_json
    from pfljax.simulate.export import export as write

    path = Path(given.run)
    name = "server" if given.client is None else f"client-{given.client}"
    out = Path(given.out) if given.out else path / f"{name}.npz"
    for key, array in write(path, given.client, out).items():
        print(f"{key:40} {array.dtype}{list(array.shape)}")
    if given.client is not None:
        number = read_json(path / "partition.json")["clients"][given.client]
        print(f"client {given.client} of this run is client {number} of its partition")
    print(f"written to {out}")


def landscape(args: list[str]) -> None:
    """Judges a run's models: the line between two by default, or another kind."""
    parser = ArgumentParser("pfljax landscape", description=landscape.__doc__)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--kind", default="line", help=", ".join(LANDSCAPES))
    parser.add_argument("--points", type=int, help="along an axis; odd for a line")
    parser.add_argument("--tolerance", type=float, help="of a line's flat ranges")
    parser.add_argument("--other", type=Path, help="a run for the lines to go to")
    given = vars(parser.parse_args(args))
    use_compile_cache()
    from pfljax.landscape.of_runs import command as runs

    print(runs.landscape(Path(given.pop("run")), given.pop("kind"), **given))


def list_(args: list[str]) -> None:
    """Prints what there is to choose from, with options and their defaults."""
    from pfljax.cli import listing

    parser = ArgumentParser("pfljax list", description=list_.__doc__)
    parser.add_argument("kind", choices=listing.KINDS)
    parser.add_argument("--markdown", action="store_true", help="a table of methods")
    given = parser.parse_args(args)
    print(listing.methods_table() if given.markdown else listing.listing(given.kind))


def prepare(args: list[str]) -> None:
    """Downloads or imports a data set, and decodes it once."""
    parser = ArgumentParser("pfljax prepare", description=prepare.__doc__)
    parser.add_argument("name", help="such as mnist or cifar10")
    parser.add_argument(
        "--raw", help="import this folder of raw archives, again if need be: no network"
    )
    given = parser.parse_args(args)
    from pfljax import data

    print(f"ready: {data.prepare(given.name, raw_dir=given.raw)}")


def bench(args: list[str]) -> None:
    """Measures this machine on W1 to W7, or plane and lines, alone or with a peer."""
    parser = ArgumentParser("pfljax bench", description=bench.__doc__)
    parser.add_argument("workloads", nargs="*", help="such as W1 W3; none: all")
    parser.add_argument("--rounds", type=int, help="rounds, or points, of a call")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls; default 3")
    parser.add_argument("--algorithm", nargs="+", help="in place of the workloads' own")
    parser.add_argument(
        "--against",
        metavar="COMMAND",
        help="a peer that prints JSON {...} with client_steps_per_s; {workload} and "
        "{algorithm} in the command stand for the names",
    )
    parser.add_argument("--out", default="runs/bench", help="folder to write to")
    parser.add_argument(
        "--public",
        action="store_true",
        help="W1 by `pfljax run`, with all that it writes, beside the bare engine",
    )
    given = parser.parse_args(args)
    from pfljax.bench import public, run

    if given.public:
        print(public.sentence(public.compare(given.rounds or 20, given.repeats)))
        return
    measured = run(
        given.workloads,
        rounds=given.rounds,
        repeats=given.repeats,
        methods=given.algorithm or (),
        peer=given.against,
        out=given.out,
    )
    print(f"{measured}\n\nsee {given.out}")


def conformance(args: list[str]) -> None:
    """Holds methods to the laws, a line a law; exit code 1 if one is broken."""
    parser = ArgumentParser("pfljax conformance", description=conformance.__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="a method")
    names = parser.parse_args(args).names
    from pfljax.conformance import run as verdicts_on

    broken = 0
    for verdict in verdicts_on(names):
        print(verdict, flush=True)
        broken += verdict.error is not None
    if broken:
        sys.exit(1)


COMMANDS = {
    "run": run,
    "resume": resume,
    "sweep": sweep,
    "report": report,
    "export": export,
    "landscape": landscape,
    "list": list_,
    "prepare": prepare,
    "bench": bench,
    "conformance": conformance,
}
