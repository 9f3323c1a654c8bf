"""Settings of all tests, before JAX starts: compiled on the CPU, quickly."""

import atexit
import gc
import importlib
import itertools
import os
import shutil
import sys
import tempfile
from importlib.metadata import version

import pytest

# Programs of the tests run for milliseconds: most of a test's time is compilation.
FAST = "--xla_backend_optimization_level=0"
# In one piece: small programs gain nothing by being compiled on several threads.
FAST += " --xla_cpu_parallel_codegen_split_count=1"
if version("jaxlib").startswith("0.10."):  # newer ones refuse the flag
    FAST += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ.setdefault("XLA_FLAGS", FAST)
# Programs do not say from which lines their operations come: a twentieth of tracing.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Both workers, and the processes that tests start, share what any of them compiled;
# in .ci/run the fast and the slow tests do so.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    PROGRAMS = tempfile.mkdtemp(prefix="pfljax-programs-")
    atexit.register(shutil.rmtree, PROGRAMS, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = PROGRAMS
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.01")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
# Tracing makes many small objects and hardly a cycle: Python would spend a seventh of
# the tests' time on the search for those.
gc.set_threshold(100_000, 50, 100)
# Who writes no bytecode compiles JAX's in each process, in two seconds: here all
# processes of the tests share theirs, in a folder of their own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    BYTECODE = tempfile.mkdtemp(prefix="pfljax-bytecode-")
    atexit.register(shutil.rmtree, BYTECODE, ignore_errors=True)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = BYTECODE
    sys.dont_write_bytecode = False


@pytest.fixture
def undrawn():
    """Figures of reports are made and saved, but not drawn."""
    import tiny

    with tiny.undrawn():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with files of one's own: "mine.py:mine"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def pytest_collection_finish():
    """Lets the search for cycles leave out what is imported, and be a rare one.

    pfljax itself searches after every few settings, which tests make in each second.
    """
    gc.freeze()
    programs = importlib.import_module("pfljax.runtime.programs")
    give_back, calls = programs._give_back, itertools.count(1)
    programs._give_back = lambda: next(calls) % 16 or give_back()
