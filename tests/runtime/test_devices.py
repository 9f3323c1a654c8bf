"""Devices that do not exist are refused before data are made."""

import os
import re
import subprocess
import sys

import jax
import pytest

import tiny
from pfljax.runtime import devices
from pfljax.simulate import begin


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["nonsense", "cuda", "tpu"])
def test_a_platform_without_devices_is_one_line(platform, tmp_path):
    env = os.environ | {"JAX_PLATFORMS": platform}
    done = tiny.command_line("list", "models", env=env)
    assert done.returncode == 0  # it needs no device
    done = tiny.command_line("run", "--rounds", 1, "--out", tmp_path / "run", env=env)
    if not done.returncode:
        pytest.skip(f"this machine has a {platform}")
    errors = done.stderr
    assert (done.returncode, done.stdout, errors.count("\n")) == (2, "", 1)
    expected = f"pfljax: JAX_PLATFORMS is '{platform}', but JAX finds no such device ("
    assert errors.startswith(expected)
    assert "; unset it, or install" in errors


@pytest.mark.parametrize(
    "command",
    [["bench", "W1"], pytest.param(["landscape", "."], marks=pytest.mark.slow)],
)
def test_every_command_tells_of_it(command):
    env = os.environ | {"JAX_PLATFORMS": "nonsense"}
    done = tiny.command_line(*command, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "JAX_PLATFORMS is 'nonsense', but JAX finds no" in done.stderr


def test_more_devices_than_there_are_is_refused_before_data_are_made(
    monkeypatch, tmp_path
):
    def data_are_made(*_):
        raise AssertionError("data are made")

    monkeypatch.setattr(begin, "build_federation", data_are_made)
    many = tiny.TINY.replace(devices=999)
    with pytest.raises(ValueError, match="devices is 999, but JAX has"):
        begin.begin(many, None, None, tmp_path, quiet=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("JAX_ENABLE_X64", "but pfljax trains in float32; unset"),
        pytest.param(
            "JAX_DISABLE_JIT",
            "but without compiled programs a round takes hours; unset",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_no_run_can_do_with_is_refused_before_a_folder_is_made(
    tmp_path, name, reason
):
    env = os.environ | {name: "1"}
    done = tiny.command_line("run", "--rounds", 1, "--out", tmp_path / "run", env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{name} is set, {reason}" in done.stderr
    assert not (tmp_path / "run").exists()


def test_fewer_devices_are_no_error():
    assert devices.check() == devices.check(1) == jax.devices()
    assert devices.at_hand(999) is None
    assert devices.at_hand(1) == 1


def test_flags_of_a_user_stay_and_the_others_are_added(monkeypatch):
    analysis = "--xla_cpu_copy_insertion_use_region_analysis"
    monkeypatch.setenv("XLA_FLAGS", f"{analysis}=false")
    devices.prepare()
    added = os.environ["XLA_FLAGS"]
    assert added.startswith(f"{analysis}=false --xla_cpu_collective_call_warn_stuck_")
    assert added.count(analysis) == 1
    devices.prepare()
    assert os.environ["XLA_FLAGS"] == added
    monkeypatch.setenv("XLA_FLAGS", "")
    devices.prepare()
    assert f"{analysis}=true" in os.environ["XLA_FLAGS"]
    # The name of a file of flags, which XLA reads.
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    devices.prepare()
    assert os.environ["XLA_FLAGS"] == "flags.txt"


@pytest.mark.slow
def test_parameters_change_where_they_lie():
    code = """
from pfljax.runtime import devices
devices.prepare()
import jax
import jax.numpy as jnp
def loss(w, x):
    hidden = x
    for kernel in w:
        hidden = jnp.tanh(hidden @ kernel)
    return hidden.sum()
def steps(w, x):
    slope = jax.grad(loss)
    def step(w, x):
        return jax.tree.map(lambda p, g: p - g, w, slope(w, x)), None
    return jax.lax.scan(step, w, x)[0]
w = [jnp.ones((64, 64))] * 3
lowered = jax.jit(steps, donate_argnums=0).lower(w, jnp.ones((9, 8, 64)))
print(lowered.compile().as_text())
"""
    env = os.environ | {"XLA_FLAGS": ""}
    command = [sys.executable, "-c", code]
    program = subprocess.check_output(command, env=env, text=True)
    assert "f32[64,64]" in program
    assert not re.search(r"f32\[64,64\]\S* copy\(", program)


@pytest.fixture
def compile_cache(monkeypatch):
    """JAX's (folder, threshold) after `use_compile_cache`; the tests' own come back."""
    threshold = "jax_persistent_cache_min_compile_time_secs"
    names = ("jax_compilation_cache_dir", threshold)
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.delenv(threshold.upper(), raising=False)

    def chosen(folder):
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update(threshold, 1.0)
        devices.use_compile_cache()
        return tuple(getattr(jax.config, name) for name in names)

    yield chosen
    for name, value in before.items():
        jax.config.update(name, value)


def test_small_programs_are_kept_wherever_the_cache_is(compile_cache, monkeypatch):
    folder, threshold = compile_cache(None)
    assert folder.endswith(".cache/pfljax/xla")
    assert threshold == 0
    assert compile_cache("elsewhere") == ("elsewhere", 0)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    assert compile_cache("elsewhere") == ("elsewhere", 1)
