"""`pfljax compare`: several methods on the same clients."""

from typing import Annotated, Any

from tyro.conf import Positional, arg

from pfljax.cli import options
from pfljax.core import requirements

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
    experiments = options.experiments(methods, settings)
    requirements.require("--seeds", seeds, seeds >= 1, "at least 1")
    base = experiments[0]
    out = base.out or f"runs/{base.dataset.name}-compare"
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
    print(f"{answer}\n\n{out}/comparison.html")
