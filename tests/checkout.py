"""Where the checkout's folders are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
EXPERIMENTS = ROOT / "experiments"
SHARED = ROOT.parent / "shared"
