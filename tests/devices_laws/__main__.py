"""Prints docs/devices_laws.md, in about six minutes of two cores: make devices."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import conftest  # noqa: F401 -- the settings of all tests, before JAX starts

from devices_laws import page
from devices_laws.verdicts import FAMILIES, check_method

AT_ONCE = 2


def main() -> int:
    """Prints the page; 1 if a law is broken, and to stderr by what."""
    methods = [method for several in FAMILIES.values() for method in several]
    verdicts = {}
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:
        for method, of_method in zip(
            methods, pool.map(check_method, methods), strict=True
        ):
            verdicts[method] = of_method
            print(f"{method} is checked", file=sys.stderr, flush=True)
    print(page.written(verdicts))
    broken = [
        f"{method}, {page.label(item)}: {law}"
        for method, by_item in verdicts.items()
        for item, verdict in by_item.items()
        for law in verdict.broken
    ]
    print(*broken, sep="\n", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
