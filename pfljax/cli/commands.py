"""The commands of `pfljax`. Each function is a command, and its parameters are options.

Modules that load JAX are imported inside the functions to keep `pfljax --help` fast. It
takes 0.2 s of CPU time, where the import of JAX, Flax and Optax takes 2.1 s.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from pfljax.cli import options
from pfljax.cli.compare import Tables, Verbose
from pfljax.cli.options import Processes, RunFolder
from pfljax.core.requirements import require_known
from pfljax.runtime.terminal import show

SINGLE = Processes()
Values = Annotated[
    UseAppendAction[tuple[tuple[str, ...], ...]],
    arg(
        metavar="NAME VALUE ...",
        help="A setting and its values. Repeat it to sweep several settings. "
        "log:0.001..0.1:9 are nine values, log~0.001..0.1:9 random ones; lin is "
        "linear.",
    ),
]
Targets = Annotated[
    tuple[float, ...],
    arg(
        help="Targets of the metric that leads. The default of a share is 0.5 and 0.9 "
        "times that of the best method."
    ),
]
Columns = Annotated[
    str | None,
    arg(
        help="A setting or option in which the runs differ: the first table has a "
        "column for each of its values. The default is the setting of the data that "
        "a sweep is over."
    ),
]


def run(settings: Any, processes: Processes = SINGLE) -> None:
    """Runs an experiment, or resumes it.

    Example: pfljax run --algorithm ditto:lam=1.0
    """
    from pfljax.cli.run import run as run_experiment
    from pfljax.runs import checks
    from pfljax.runtime.processes import address

    # First: an incomplete address is refused before the method loads JAX.
    address_of_processes = address(**vars(processes))
    experiment = options.to_experiment(settings)
    checks.check(experiment)
    run_experiment(checks.resolve(experiment), address_of_processes)


def resume(
    run: Positional[RunFolder],
    rounds: Annotated[int | None, arg(help="The new total of rounds.")] = None,
    processes: Processes = SINGLE,
) -> None:
    """Resumes a run, or extends a finished one.

    Example: pfljax resume RUN --rounds 200
    """
    from pfljax.cli.run import run as run_experiment
    from pfljax.runs import folder
    from pfljax.runtime.processes import address

    address_of_processes = address(**vars(processes))
    experiment = folder.read_config(run).replace(out=str(run))
    if rounds is not None:
        experiment = experiment.replace(rounds=rounds)
    run_experiment(experiment, address_of_processes, resumes=True)


def sweep(
    settings: Any,
    over: Values = (),
    without: Annotated[
        tuple[str, ...],
        arg(
            metavar="NAME ...",
            help="Settings or options of the method. The sweep has the full method, "
            "and the method with each of these in turn at its default.",
        ),
    ] = (),
    columns: Columns = None,
    tables: Tables = False,
    verbose: Verbose = False,
) -> None:
    """Runs every combination of the values of some settings.

    Example: pfljax sweep --algorithm fedprox --over mu 0 0.1 --over seed 0 1 2
    """
    values = options.parse_over(over, without)
    experiment = options.to_experiment(settings)
    if columns is not None:
        require_known("--columns", columns, values)
    from pfljax.cli.report import report as write_report
    from pfljax.runs import folder
    from pfljax.runtime import devices
    from pfljax.sweep import sweep as run_all

    devices.use_compile_cache()
    swept = run_all(experiment, values, quiet=False)
    if swept.results:
        forms = {"columns": columns, "with_tables": tables, "verbose": verbose}
        # Other processes of the sweep may end now, too.
        with folder.lock(swept.folder, "sweep"):
            answer = write_report([swept.folder], None, (), **forms)
        show(answer)
    if swept.failed:
        sys.exit(1)


def report(
    runs: Annotated[
        Positional[tuple[Path, ...]],
        arg(
            help="The folder of a run, of several runs to compare, of a comparison or "
            "of a sweep."
        ),
    ],
    out: Annotated[
        Path | None,
        arg(
            help="The folder to write to. The default is the run's or comparison's "
            "own; several folders get one of their own in runs/."
        ),
    ] = None,
    target: Targets = (),
    target_window: Annotated[
        int,
        arg(
            help="Evaluations in a row whose mean has to reach a target; 1 is the "
            "plain curve."
        ),
    ] = 3,
    figures: Annotated[
        tuple[Literal["pdf", "png", "svg"], ...],
        arg(help="Also write the figures as files of these formats."),
    ] = (),
    columns: Columns = None,
    tables: Annotated[
        bool,
        arg(
            help="Also write tables in Markdown and LaTeX; of one run clients.csv, the "
            "metrics of each client."
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Writes the page of a finished run, of a comparison of runs, or of a sweep.

    Example: pfljax report RUN RUN --out FOLDER --target 0.8
    """
    from pfljax.cli.report import report as write_report

    options = {"with_tables": tables, "figure_kinds": figures, "verbose": verbose}
    options |= {"target_window": target_window, "columns": columns}
    show(write_report(runs, out, target, **options))


def list_(
    kind: Annotated[
        Positional[str | None], arg(help="A kind of component, such as algorithms.")
    ] = None,
    name: Annotated[
        Positional[str | None],
        arg(help="A component, of which to print the whole description."),
    ] = None,
) -> None:
    """Lists the components of a kind with their options, or describes one of them.

    Example: pfljax list algorithms
    """
    from pfljax.cli import listing

    if kind is None:
        show(listing.list_kinds())
    elif name is not None:
        show(listing.describe(kind, name))
    else:
        show(listing.list_components(kind))


def bench(
    workloads: Annotated[
        Positional[tuple[str, ...]],
        arg(help="For example W1 W3. The default is all of them."),
    ] = (),
    rounds: Annotated[
        int | None, arg(help="The number of rounds in a timed call.")
    ] = None,
    repeats: Annotated[int, arg(help="The number of timed calls.")] = 3,
    algorithm: Annotated[
        tuple[str, ...], arg(help="Methods, instead of those of the workloads.")
    ] = (),
    against: Annotated[
        str | None,
        arg(
            metavar="COMMAND",
            help="The command of another simulator, which prints JSON with "
            "client_steps_per_s. {workload} and {algorithm} in it are replaced by the "
            "names.",
        ),
    ] = None,
    out: Annotated[Path, arg(help="The folder to write to.")] = Path("runs/bench"),
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
    show(f"see {out / 'results.json'}")


def conformance(
    names: Annotated[
        Positional[tuple[str, ...]],
        arg(help="Methods, for example ditto:lam=0.0 or my/file.py:mine."),
    ],
    bytes: Annotated[
        tuple[int, int] | None,
        arg(
            metavar="DOWN UP",
            help="The bytes that the methods send for the toy model, whose body has 64 "
            "bytes and whose head has 60.",
        ),
    ] = None,
    ignores_steps: Annotated[
        bool, arg(help="The uploads do not depend on the number of steps.")
    ] = False,
) -> None:
    """Checks methods against the laws that every method obeys.

    Example: pfljax conformance my/file.py:mine
    """
    from pfljax.conformance import run as verdicts
    from pfljax.runtime import devices

    devices.check()
    failed = False
    for verdict in verdicts(names, bytes, ignores_steps):
        show(verdict)
        failed |= verdict.error is not None
    if failed:
        sys.exit(1)
