"""The program around the commands: Ctrl-C, aborts, closed pipes, terminals, limits."""

import errno
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

import tiny
from pfljax.runtime import errors, files

AT_IMPORT = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            {action}
sys.meta_path.insert(0, Interrupts())
from pfljax.cli.main import main
main()
"""
FIRST = """
import os, signal, sys
before = set(sys.modules)
def first(*_):
    print(*sorted(set(sys.modules) - before), flush=True)
    os._exit(0)
signal.signal = first
from pfljax.cli.main import main
main()
"""
PARTS = ("pfljax", "pfljax.cli", "pfljax.cli.main", "pfljax.runtime")
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"
READY = "print('ready', flush=True)"
RUN = ["run", "--clients", "6", "--cohort", "3", "--rounds", "40", "--model", "mlp"]
# More rounds than any machine runs before the signal comes.
ENDLESS = [*RUN, "--rounds", "1000000"]
ASCII = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
}


def python(program, *args, **options):
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True, text=True, timeout=300, **options,
    )  # fmt: skip


def shell(command):
    """bash's answer; `pfljax` in the command is this one."""
    pfljax = f"{shlex.quote(sys.executable)} -m pfljax"
    command = command.replace("pfljax", pfljax)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=300
    )


def test_nothing_is_imported_before_it_stands_ready_for_ctrl_c():
    done = python(FIRST)
    assert done.stdout.split() == [*PARTS, "pfljax.runtime.interrupts"]


@pytest.mark.parametrize(
    "module", ["pfljax.runtime.errors", "lazy_loader", "tyro", "jax", "flax", "numpy"]
)
def test_ctrl_c_while_it_imports_is_one_line(module, tmp_path):
    program = AT_IMPORT.format(module=module, action=INTERRUPT)
    done = python(program, *RUN, "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\npfljax: stopped\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 0.2, 0.5, 1, 1.5, 2, 3, 4, 6, 9])
def test_ctrl_c_at_any_moment_is_one_line(delay, tmp_path):
    program = AT_IMPORT.format(module="pfljax.cli.parser", action=READY)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *ENDLESS, "--out", str(tmp_path / "run")],
        env=tiny.environment(tmp_path / "xla"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1].startswith("pfljax: stopped")
    assert "Traceback" not in errors


def test_the_library_leaves_the_handlers_alone():
    program = """
import signal
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGABRT)]
import pfljax, pfljax.cli.main, pfljax.runtime.meeting
pfljax.run
assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGABRT)]
import os
os.abort()
"""
    done = python(program)
    assert done.returncode == -signal.SIGABRT
    assert not done.stderr


def test_an_abort_below_python_ends_with_a_line():
    program = AT_IMPORT.format(module="jax", action="os.abort()")
    done = python(program, *RUN)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pfljax: the runtime below Python gave up (see above), mos")


# A thread of C, which Python does not know, aborts while nobody has memory left and the
# main thread keeps Python's lock.
ABORT_WITHOUT_MEMORY = """
import ctypes, resource, signal
from pfljax.runtime import aborts
aborts.tell("pfljax: of all lines, 100 % this one")
aborts.tell("pfljax: 100 % told")
libc = ctypes.PyDLL(None)
thread = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, libc.pause, None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
resource.setrlimit(resource.RLIMIT_AS, (1, 1))
for size in (2**20, 2**12, 2**6, 2**4):
    while libc.malloc(size):
        pass
libc.pthread_kill(thread, int(signal.SIGABRT))
libc.sleep(60)
"""


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="elsewhere the handler of an abort is in Python, which needs memory",
)
def test_an_abort_without_memory_and_without_the_lock_ends_with_a_line():
    started = time.monotonic()
    done = python(ABORT_WITHOUT_MEMORY)
    assert (done.returncode, done.stderr) == (2, "pfljax: 100 % told\n")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--bogus", "Unknown flag in XLA_FLAGS: --bogus"),
        ("--xla_cpu_enable_fast_math=maybe", "Couldn't interpret value maybe for flag"),
        ("bogus", 'Could not open file "bogus" to read flags'),
    ],
)
def test_flags_that_xla_cannot_read_are_one_line(flags, reason):
    done = tiny.command_line("run", env=os.environ | {"XLA_FLAGS": flags})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"pfljax: XLA_FLAGS is {flags!r}, which XLA cannot read ({reason}" in (
        done.stderr
    )


def test_flags_that_xla_knows_are_taken():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = tiny.command_line("list", "models", env=os.environ | flags)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_left_is_no_error():
    here, there = os.pipe()
    os.close(here)
    command = [sys.executable, "-m", "pfljax", "list", "algorithms"]
    try:
        done = subprocess.run(command, stdout=there, stderr=subprocess.PIPE)
    finally:
        os.close(there)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
def test_help_to_a_reader_that_left_is_no_error():
    done = shell("set -o pipefail; pfljax run --help | (exec <&-; sleep 5)")
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_behind_stdout_is_one_line():
    done = shell("pfljax list algorithms > /dev/full")
    assert done.returncode == 2
    assert done.stderr == (
        "pfljax: [Errno 28] No space left on device; make room on the disk; the same "
        "command then goes on\n"
    )


def test_a_file_that_may_not_be_read_is_not_told_as_written():
    refused = PermissionError(errno.EACCES, "Permission denied", "a.npz")
    assert errors.sentence(refused) == "[Errno 13] Permission denied: 'a.npz'"


def test_a_full_disk_is_told_as_one_by_tensorstore_as_well():
    refused = ValueError(
        "RESOURCE_EXHAUSTED: Error writing local file: No space left on device [spec]"
    )
    assert errors.sentence(refused) == (
        "No space left on device; make room on the disk; the same command then goes on"
    )
    refused = files.FileError(f"cannot write to /data/x ({os.strerror(errno.ENOSPC)})")
    assert errors.sentence(refused) == str(refused)
    refused = ValueError("RESOURCE_EXHAUSTED: Out of memory allocating 4 bytes")
    assert errors.sentence(refused).endswith(errors.LESS_MEMORY)


@pytest.mark.slow
def test_a_recovery_says_nothing_of_asyncio(tmp_path):
    finished, _, _ = tiny.finished(tmp_path)
    folder = tiny.unfinished(finished, tmp_path / "run")
    newest = folder / "checkpoints" / "2"
    shutil.copytree(newest, folder / "checkpoints" / "4")
    # What Orbax finds damaged in the midst of a read, its tasks still under way.
    for file in (newest.with_name("4")).rglob("d/*"):
        file.write_bytes(file.read_bytes()[:10])
    job = tiny.SEEN.replace(out=str(folder))
    done = tiny.command_line("run", *tiny.options(job))
    assert done.returncode == 0, done.stderr
    assert "the checkpoint of round 4 is damaged" in done.stdout + done.stderr
    for word in ("asyncio", "Traceback", "Task ", "never retrieved", "never awaited"):
        assert word not in done.stderr
    # A plain resume, from what the recovery has left.
    (folder / "summary.json").unlink()
    done = tiny.command_line("run", *tiny.options(job))
    assert (done.returncode, "asyncio" in done.stderr) == (0, False)


def test_closed_streams_are_no_error_and_no_file_takes_their_place():
    done = shell("pfljax list algorithms >&- 2>&- <&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    program = """
import os
os.close(2)
from pfljax.cli import streams
streams.make_safe()
print(open(os.devnull).fileno())
"""
    assert int(python(program).stdout) > 2


def test_signs_that_the_terminal_lacks_are_escaped():
    program = (
        "from pfljax.cli import streams; streams.make_safe(); import sys; "
        "print('.5 \\xb1 .1'); print('\\u2026', file=sys.stderr)"
    )
    done = python(program, env=os.environ | ASCII)
    assert (done.returncode, done.stdout) == (0, ".5 \\xb1 .1\n")
    assert done.stderr == "\\u2026\n"


def test_a_method_of_any_sign_is_told_in_ascii():
    done = tiny.command_line("run", "--algorithm", "±", env=os.environ | ASCII)
    assert done.returncode == 2
    assert done.stderr.startswith("pfljax: unknown algorithm ")


def test_too_few_open_files_are_one_line():
    done = shell("ulimit -n 20; pfljax run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "pfljax: only 20 files may be open at once, expected at least 64: raise "
        "`ulimit -n`\n"
    )


def test_a_small_address_space_ends_with_a_line():
    done = shell("ulimit -v 700000; pfljax run --model mlp --rounds 1")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "expected at least 1.5: raise `ulimit -v`" in done.stderr
