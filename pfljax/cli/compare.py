"""`pfljax compare`: several methods on the same clients."""

from collections.abc import Sequence
from typing import Annotated, Any

from tyro.conf import Positional, arg

from pfljax.cli.options import to_experiment
from pfljax.core.components import parse
from pfljax.core.requirements import require
from pfljax.runs.settings import Experiment
from pfljax.runtime.terminal import show

Methods = Annotated[
    Positional[tuple[str, ...]],
    arg(help="Methods, for example fedper or ditto:lam=0.5."),
]
Tables = Annotated[bool, arg(help="Also write tables in Markdown and LaTeX.")]
Verbose = Annotated[bool, arg(help="Print all tables.")]


def compare(
    methods: Methods,
    settings: Any,
    seeds: Annotated[int, arg(help="The number of seeds, from --seed on.")] = 3,
    local: Annotated[bool, arg(help="Add local training.")] = True,
    finetuned: Annotated[
        bool, arg(help="Add FedAvg with 20 steps of fine-tuning.")
    ] = True,
    tables: Tables = False,
    verbose: Verbose = False,
) -> None:
    """Compares methods on the same clients under several seeds.

    Example: pfljax compare fedper ditto:lam=0.5 --seeds 5 --rounds 50
    """
    experiments = _make_experiments(methods, settings)
    require("--seeds", seeds, seeds >= 1, "at least 1")
    base = experiments[0]
    out = base.out or f"runs/{base.dataset.short_name}-compare"
    from pfljax.runs import checks
    from pfljax.runtime import devices
    from pfljax.simulate import compare as comparison

    numbers = range(base.seed, base.seed + seeds)
    # All before the first one runs: an error in the last would show hours later.
    for experiment in comparison.grid(experiments, numbers, out, local, finetuned):
        checks.check(experiment)
    devices.use_compile_cache()
    answer = comparison.compare(
        experiments,
        numbers,
        out,
        local=local,
        finetuned=finetuned,
        with_tables=tables,
        verbose=verbose,
    )
    show(f"{answer}\n\n{out}/comparison.html")


def _make_experiments(methods: Sequence[str], settings: Any) -> list[Experiment]:
    """One experiment for each method, all with the same settings.

    Raises:
      ValueError: no method is given, or one is given twice.
    """
    if not methods:
        raise ValueError(
            "no method is given; expected pfljax compare NAME ..., such as fedper or "
            "ditto:lam=0.5"
        )
    choices = [parse(text) for text in methods]
    for choice in choices:
        if choices.count(choice) > 1:
            raise ValueError(f"{choice} is given twice; give it once")
    shared = to_experiment(settings)
    return [shared.replace(algorithm=choice) for choice in choices]
