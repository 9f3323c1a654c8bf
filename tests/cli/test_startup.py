"""The programs that a run from the command line compiles, and fetches again."""

import pytest

import tiny

SMALL = "--model mlp:hidden=(8,) --clients 4 --cohort 2 --epochs 1 --rounds 2"


@pytest.mark.slow
def test_a_run_compiles_few_programs_and_fetches_them_all_again(tmp_path):
    cache = tmp_path / "cache"
    environment = tiny.environment(cache)

    def run(out):
        """The names of the cached programs after another run."""
        options = [*SMALL.split(), "--eval-every", "1", "--out", tmp_path / out]
        done = tiny.command_line(
            "run", "--algorithm", "superfed", *options, env=environment
        )
        assert done.returncode == 0, done.stderr
        return {path.name for path in cache.iterdir() if path.name.endswith("-cache")}

    # Rounds, three of the first state, its key, and evaluations, which are two programs
    # each: which models are evaluated, and their metrics. The models along a path are
    # evaluated together, with their ensemble, by a program of their own.
    programs = run("cold")
    assert 1 <= len(programs) <= 13
    assert run("warm") == programs
