"""`pfljax compare`: several methods on the same clients, and which is better."""

from typing import Annotated, Any

from tyro.conf import Positional, arg

from pfljax import registry
from pfljax.cli import options

Methods = Annotated[
    Positional[tuple[str, ...]],
    arg(help="Such as fedper or, with options, ditto:lam=0.5."),
]
Tables = Annotated[bool, arg(help="Write tables in Markdown and LaTeX as well.")]
Verbose = Annotated[bool, arg(help="Print all tables.")]


def compare(
    methods: Methods,
    settings: Any,
    seeds: Annotated[int, arg(help="How many, from --seed on.")] = 3,
    local: Annotated[bool, arg(help="Add local training.")] = True,
    finetuned: Annotated[
        bool, arg(help="Add FedAvg, fine-tuned by 20 local steps.")
    ] = True,
    tables: Tables = False,
    verbose: Verbose = False,
) -> None:
    """Compares methods on the same clients under several seeds.

    Such as: pfljax compare fedper ditto:lam=0.5 --seeds 5 --rounds 50
    """
    experiments = options.of_methods(methods, settings)
    registry.require("--seeds", seeds, seeds >= 1, "at least 1")
    base = experiments[0]
    out = base.out or f"runs/{base.dataset.name}-compare"
    from pfljax.runs import checks
    from pfljax.runtime import devices
    from pfljax.simulate import compare as comparison

    numbers = range(base.seed, base.seed + seeds)
    # All before the first runs: a mistake of the last one would show hours later.
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
