"""What accelerators will get: counts in programs, bytes of a step, and bounds."""

import json

import pytest

import tiny
from pfljax.bench import hlo, local_step, lowered, lowered_tables, roofline
from pfljax.bench.catalogue import WORKLOADS
from pfljax.core.precision import PRECISIONS

COMPILED = """HloModule jit_f, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%fused (p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(0)
  ROOT %m.1 = f32[4]{0} multiply(%p.1, %p.1)
}

%product (p.2: f32[4]) -> f32[4] {
  %p.2 = f32[4]{0} parameter(0)
  %d.2 = f32[4]{0} dot(%p.2, %p.2), lhs_contracting_dims={0}
  ROOT %n.2 = f32[4]{0} negate(%d.2)
}

%inner (a.1: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a.1 = (s32[], f32[4]{0}) parameter(0)
  %g.1 = f32[4]{0} get-tuple-element(%a.1), index=1
  %f.1 = f32[4]{0} fusion(%g.1), kind=kLoop, calls=%fused
  ROOT %t.1 = (s32[], /*index=1*/f32[4]{0}) tuple(%g.1, %f.1)
}

%small (a.2: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a.2 = (s32[], f32[4]{0}) parameter(0)
  ROOT %c.2 = (s32[], f32[4]{0}) copy(%a.2)
}

%step (a.3: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a.3 = (s32[], f32[4]{0}) parameter(0)
  %f.3 = f32[4]{0} fusion(%a.3), kind=kOutput, calls=%product
  %d.3 = f32[4,4]{1,0} dot(%a.3, %a.3), lhs_contracting_dims={0}
  %w.3 = (s32[], f32[4]{0}) while(%a.3), condition=%fused, body=%inner
  %k.3 = f32[4]{0} call(%w.3), to_apply=%small
  ROOT %t.3 = (s32[], f32[4]{0}) tuple(%k.3)
}

ENTRY %main.1 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0)
  %w.4 = (s32[], f32[4]{0}) while(%x.1), condition=%fused, body=%small
  %w.5 = (s32[], f32[4]{0}) while(%w.4), condition=%fused, body=%step
  ROOT %e.1 = f32[4]{0} exponential(%w.5)
}
"""


def test_kernels_are_those_of_the_largest_loop_and_what_it_calls():
    assert hlo.step_kernels(COMPILED) == {"dot": 2, "fusion": 1, "copy": 1}


def test_a_program_without_a_loop_has_the_kernels_of_its_entry():
    lines = [line for line in COMPILED.splitlines() if "while(" not in line]
    assert hlo.step_kernels("\n".join(lines)) == {"exponential": 1}


def test_kernels_have_names():
    kinds = hlo.kernels_by_name(COMPILED)
    expected = {"f.1": "fusion", "f.3": "dot", "c.2": "copy", "m.1": "multiply"}
    assert {name: kinds[name] for name in expected} == expected
    assert not {"x.1", "w.5", "k.3", "g.1"} & set(kinds)


def test_lowered_operations_leave_out_constants():
    text = """
      %0 = stablehlo.constant dense<1.0> : tensor<f32>
      %1 = stablehlo.add %0, %0 : tensor<f32>
      %2 = "stablehlo.reduce"(%1) ({ stablehlo.return %1 : tensor<f32> })
    """
    assert hlo.lowered_ops(text) == 2


@pytest.mark.parametrize(
    ("flops", "nbytes", "expected", "by_memory"),
    [(1e9, 1e9, 3.35e12, True), (1e12, 1e9, 67e12, False), (20e9, 1e9, 67e12, False)],
)
def test_a_bound_is_the_least_of_peak_and_bandwidth(flops, nbytes, expected, by_memory):
    h100 = roofline.DEVICES[0]
    bound = roofline.bound(h100, "float32", flops, nbytes)
    assert bound == (pytest.approx(expected), by_memory)
    assert bound.times_a_second(flops) == pytest.approx(expected / flops)


def test_every_device_has_every_precision():
    for device in roofline.DEVICES:
        assert tuple(device.peaks) == PRECISIONS
        assert list(device.peaks.values()) == sorted(device.peaks.values())


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("bfloat16", 2)])
def test_least_bytes_of_a_perceptron_are_counted_by_hand(precision, size):
    workload = WORKLOADS["W1"]._replace(model="mlp:hidden=(200,)", batch_size=16)
    step = local_step.step_of(workload, precision)
    rows = 16 * 784
    hidden = 16 * 200
    # Of the hidden layer its input, its output, and which units are above zero.
    kept = rows * size + 2 * hidden * size + hidden
    if precision == "bfloat16":
        kept += 200 * 10 * size  # the copy of the head's kernel
    of_loss = local_step.kept_bytes(step) - kept
    assert 16 * 10 * 4 <= of_loss < 1000
    products = 3 * 200 * 10 + 2 * 784 * 200  # rows need no gradient
    assert local_step.flops(step) == 2 * 16 * products
    numbers = 784 * 200 + 200 + 200 * 10 + 10
    least = local_step.least_bytes(step)
    assert least == 4 * 4 * numbers + 4 * rows + 2 * (kept + of_loss)


def test_clients_that_fit_lie_between_the_widths_that_were_compiled():
    held = {"10": 1000, "100": 19_000}
    assert lowered_tables.fitting(held, 10) == 0
    assert lowered_tables.fitting(held, 500) == 5
    assert lowered_tables.fitting(held, 1000 + 200 * 7) == 17
    assert lowered_tables.fitting(held, 38_000) == 200


@pytest.mark.parametrize(
    "more", [["W1"], ["--against", "echo"], ["--rounds", "2"], ["--algorithm", "ditto"]]
)
def test_it_times_nothing(more, tmp_path):
    code, _, errors = tiny.main("bench", "lowered", *more, "--out", tmp_path / "out")
    assert code == 2
    assert errors.startswith("pfljax: lowered times nothing: it takes no other")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_tables_tell_of_each_form_and_device(tmp_path, monkeypatch):
    small = WORKLOADS["W2"]._replace(shape=(8, 8, 3))
    monkeypatch.setitem(WORKLOADS, "W2", small)
    names = ("W1", "W2")
    text = lowered.run(["lowered"], out=tmp_path, cases=names, widths=(2, 4))
    for device in roofline.DEVICES:
        assert text.count(f"| {device.name} |") == 1
    twonn, twocnn = json.loads((tmp_path / "lowered.json").read_text())["results"]
    assert list(twonn["forms"]) == ["-"]
    assert list(twocnn["forms"]) == ["columns", "groups"]
    columns, groups = twocnn["forms"].values()
    # Pixels under windows are written by one form alone, and it has no convolution.
    assert columns["temporary"]["4"] > groups["temporary"]["4"]
    assert "convolution" in groups["kernels"]
    assert "convolution" not in columns["kernels"]
    for result in (twonn, twocnn):
        exact, tf32, rough = result["precisions"].values()
        assert exact["least_bytes"] == tf32["least_bytes"] != rough["least_bytes"]
        for found in result["forms"].values():
            narrow, wide = found["temporary"].values()
            assert wide == pytest.approx(2 * narrow, rel=0.2)
            assert found["kernels"]["fusion"] > 0
