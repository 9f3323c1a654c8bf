"""The commands: the parameters of a function are the options of `pfljax COMMAND`.

Imports that load JAX are inside the functions, so that help is quick.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from pfljax.cli import options
from pfljax.cli.comparing import Tables, Verbose
from pfljax.cli.options import Processes

ALONE = Processes()
RunFolder = Annotated[Path, arg(help="A run folder.")]
Out = Annotated[Path, arg(help="Folder to write to.")]
Workloads = Annotated[
    Positional[tuple[str, ...]],
    arg(help="For example W1 W3. The default is all of them."),
]
Values = Annotated[
    UseAppendAction[tuple[tuple[str, ...], ...]],
    arg(
        metavar="NAME VALUE ...",
        help="A setting and its values. Repeat it to sweep several.",
    ),
]


def run(settings: Any, processes: Processes = ALONE) -> None:
    """Runs an experiment, or resumes it.

    Example: pfljax run --algorithm ditto:lam=1.0
    """
    from pfljax.cli import running
    from pfljax.runs import checks

    # First: half an address is refused before the method loads JAX.
    address = running.address(processes)
    experiment = options.experiment(settings)
    checks.check(experiment)
    running.run(checks.resolve(experiment), address)


def resume(
    run: Positional[RunFolder],
    rounds: Annotated[int | None, arg(help="The new total of rounds.")] = None,
    processes: Processes = ALONE,
) -> None:
    """Resumes a run, or extends a finished one.

    Example: pfljax resume RUN --rounds 200
    """
    from pfljax.cli import running
    from pfljax.runs import folder

    address = running.address(processes)
    experiment = folder.read_config(run).replace(out=str(run))
    if rounds is not None:
        experiment = experiment.replace(rounds=rounds)
    running.run(experiment, address, begun=True)


def sweep(
    settings: Any, over: Values, tables: Tables = False, verbose: Verbose = False
) -> None:
    """Runs every combination of the values of some settings.

    Example: pfljax sweep --algorithm fedprox --over mu 0 0.1 --over seed 0 1 2
    """
    values = options.values(over)
    experiment = options.experiment(settings)
    from pfljax.report import write_sweep_report
    from pfljax.runtime import devices
    from pfljax.sweep import sweep as run_all
    from pfljax.sweep.results import default_folder

    out = experiment.out or default_folder(experiment, values)
    devices.use_compile_cache()
    run_all(experiment, values, out=out, quiet=False)
    answer = write_sweep_report(out, out, with_tables=tables, verbose=verbose)
    print(f"{answer}\n\n{out}/sweep.html")


def report(
    runs: Annotated[
        Positional[tuple[Path, ...]],
        arg(help="A run, several to compare, or the folder of a comparison or sweep."),
    ],
    out: Annotated[
        Path | None,
        arg(help="The folder to write to. The default is the folder of the runs."),
    ] = None,
    target: Annotated[
        tuple[float, ...],
        arg(help="Accuracies. The default is half and 0.9 of the best method's."),
    ] = (),
    figures: Annotated[
        tuple[Literal["pdf", "png", "svg"], ...],
        arg(help="Also write the figures as files of these kinds."),
    ] = (),
    tables: Tables = False,
    verbose: Verbose = False,
) -> None:
    """Writes the page of a finished run, of a comparison of runs, or of a sweep.

    Example: pfljax report RUN RUN --out FOLDER --target 0.8
    """
    from pfljax.cli import reporting

    options = {"with_tables": tables, "figure_kinds": figures, "verbose": verbose}
    print(reporting.report(runs, out, target, **options))


def export(
    run: Positional[RunFolder],
    client: Annotated[
        int | None,
        arg(
            help="The number of a client that trains. None is the server. Clients held "
            "out by --unseen have no state."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        arg(help="The file. The default is RUN/client-K.npz or RUN/server.npz."),
    ] = None,
) -> None:
    """Writes the personal model of a client, or the server's model, as an .npz file.

    Example: pfljax export RUN --client 3
    """
    from pfljax.runs import folder

    folder.read_config(run)  # refuses what is not a run
    name = "server" if client is None else f"client-{client}"
    file = out or run / f"{name}.npz"
    from pfljax.runtime import devices
    from pfljax.simulate import export as exporting

    devices.check()
    for key, array in exporting.export(run, client, file).items():
        print(f"{key:40} {array.dtype}{list(array.shape)}")
    if client is not None:
        number = folder.read_partition(run)["clients"][client]
        print(f"client {client} of this run is client {number} of its partition")
    print(f"written to {file}")


def landscape(
    run: Positional[RunFolder],
    kind: Annotated[
        str, arg(help="line, pairs, plane, hessian, curvature or training.")
    ] = "line",
    points: Annotated[
        int | None, arg(help="Points along an axis; an odd number for a line.")
    ] = None,
    tolerance: Annotated[
        float | None, arg(help="The range of a line that counts as flat.")
    ] = None,
    other: Annotated[
        Path | None, arg(help="A second run, for lines between two runs.")
    ] = None,
) -> None:
    """Draws the loss around the models of a run, or between them.

    Example: pfljax landscape RUN --kind pairs
    """
    from pfljax.landscape.kinds import command
    from pfljax.runtime import devices

    devices.use_compile_cache()
    devices.check()
    wanted = {"points": points, "tolerance": tolerance, "other": other}
    print(command.landscape(run, kind, **wanted))


def prepare(
    name: Annotated[Positional[str], arg(help="For example mnist or cifar10.")],
    raw: Annotated[
        str | None,
        arg(help="Import the raw archives in this folder, without a network."),
    ] = None,
) -> None:
    """Downloads or imports a data set and decodes it.

    Example: pfljax prepare mnist
    """
    from pfljax import data

    print(f"ready: {data.prepare(name, raw_dir=raw)}")


def bench(
    workloads: Workloads = (),
    rounds: Annotated[int | None, arg(help="Rounds in a timed call.")] = None,
    repeats: Annotated[int, arg(help="Timed calls.")] = 3,
    algorithm: Annotated[
        tuple[str, ...], arg(help="Methods, instead of those of the workloads.")
    ] = (),
    against: Annotated[
        str | None,
        arg(
            metavar="COMMAND",
            help="The command of a peer that prints JSON with client_steps_per_s. "
            "{workload} and {algorithm} in it are replaced by the names.",
        ),
    ] = None,
    out: Out = Path("runs/bench"),
) -> None:
    """Times the workloads W1 to W11, alone or in turn with another simulator.

    Example: pfljax bench W1 W3
    """
    from pfljax import bench
    from pfljax.runtime import devices

    devices.prepare()
    devices.check()
    measured = bench.run(
        workloads,
        rounds=rounds,
        repeats=repeats,
        methods=algorithm,
        against=against,
        out=out,
    )
    bench.show(**measured)
    print(f"see {out / 'results.json'}")


def conformance(
    names: Annotated[
        Positional[tuple[str, ...]],
        arg(help="Methods, for example ditto or ditto:lam=0.0."),
    ],
    bytes: Annotated[
        tuple[int, int] | None,
        arg(
            metavar="DOWN UP",
            help="The bytes that they send for the toy model (body 64, head 60).",
        ),
    ] = None,
    ignores_steps: Annotated[
        bool, arg(help="The uploads do not depend on the number of steps.")
    ] = False,
) -> None:
    """Checks methods against the laws that every method obeys.

    Example: PFLJAX_METHODS=FOLDER pfljax conformance NAME
    """
    from pfljax.conformance import run as verdicts
    from pfljax.runtime import devices

    devices.check()
    failed = False
    for verdict in verdicts(names, bytes, ignores_steps):
        print(verdict, flush=True)
        failed |= verdict.error is not None
    if failed:
        sys.exit(1)
