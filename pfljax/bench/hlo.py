"""Counts in the texts of compiled and of lowered programs."""

import re
from collections import Counter

# A computation's first line, and an instruction: its type may be a tuple of types.
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][a-z0-9\-]*)\(")
_NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_CALLED = re.compile(r"\b(?:body|to_apply|calls)=%?([\w.\-]+)")
_LOWERED = re.compile(r"\bstablehlo\.([a-z_]+)")
# They start no kernel: names for what is there, or calls of what does.
FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
    "after-all", "opt-barrier",
}  # fmt: skip
CALLS = ("while", "call")
PRODUCTS = {"dot", "convolution"}


def step_kernels(text: str) -> Counter[str]:
    """Kernels by kind in the largest loop of an optimised HLO module.

    A fusion around a dot or a convolution is of the kind of these.
    Loops within it count once, whatever their length. A program without a loop has the
    kernels of its entry.
    """
    computations, entry = _computations(text)
    loops = []
    for line in computations[entry]:
        if _kind(line) == "while":
            body = _called(line)
            loops.append(_kernels(computations, body))
    if not loops:
        return _kernels(computations, entry)
    return max(loops, key=Counter.total)


def kernels_by_name(text: str) -> dict[str, str]:
    """The kind of each kernel of an optimised HLO module, as in `step_kernels`."""
    computations, _ = _computations(text)
    kinds = {}
    for lines in computations.values():
        for line in lines:
            kind = _kernel(computations, line)
            if kind not in FREE and (name := _NAME.match(line)):
                kinds[name[1]] = kind
    return kinds


def lowered_ops(text: str) -> int:
    """Operations in a StableHLO module, but for constants and returns."""
    kinds = Counter(_LOWERED.findall(text))
    return kinds.total() - kinds["constant"] - kinds["return"]


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """(instructions by computation, the name of the entry)."""
    computations: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[2]
            computations[name] = []
            if header[1]:
                entry = name
        elif name and line.startswith(" "):
            computations[name].append(line)
    return computations, entry


def _kernels(computations: dict[str, list[str]], name: str) -> Counter[str]:
    """Kernels by kind of one computation, and of those that it calls."""
    kernels: Counter[str] = Counter()
    for line in computations[name]:
        kind = _kernel(computations, line)
        if kind in CALLS:
            kernels += _kernels(computations, _called(line))
        elif kind not in FREE:
            kernels[kind] += 1
    return kernels


def _kernel(computations: dict[str, list[str]], line: str) -> str:
    """What the instruction does; a fusion around a product is one."""
    kind = _kind(line)
    if kind != "fusion":
        return kind
    inside = set(map(_kind, computations[_called(line)]))
    return max(inside & PRODUCTS, default=kind)


def _kind(line: str) -> str:
    """What the instruction does; a line that is none counts as free."""
    match = _INSTRUCTION.match(line)
    return match[1] if match else "bitcast"


def _called(line: str) -> str:
    """The computation that a loop or a call runs."""
    match = _CALLED.search(line)
    assert match is not None, line
    return match[1]
