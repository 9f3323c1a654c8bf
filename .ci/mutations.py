"""Breaks the code in 45 ways, one after another, and runs the tests that should notice.

    .venv/bin/python .ci/mutations.py          # about three minutes
    .venv/bin/python .ci/mutations.py oort     # those of files whose path has "oort"

It prints the mutations that no test notices, and fails where there is one. It works on
a copy of the tracked files. When a line of MUTATIONS no longer matches the code, write
it anew beside the change.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# file of pfljax/ | code | mutation | tests
MUTATIONS = """
algorithms/multi_task/ditto.py | proximal(w, lam) | proximal(w, -lam) | algorithms/multi_task/test_ditto.py
algorithms/interpolation/superfed.py | nu * cosine | -nu * cosine | algorithms/interpolation/test_superfed.py
algorithms/interpolation/superfed.py | turn.round > first | turn.round >= first | algorithms/interpolation/test_superfed.py
algorithms/interpolation/superfed.py | proximal(w, 2 * mu) | proximal(w, mu) | algorithms/interpolation/test_superfed.py
algorithms/interpolation/apfl.py | tree.sub(v, w) | tree.sub(w, v) | algorithms/interpolation/test_apfl.py
algorithms/interpolation/l2gd.py | lam * (1 - p) / p | lam * (1 - p) | algorithms/interpolation/test_l2gd.py
algorithms/multi_task/pfedme.py | tree.sub(w, after) | tree.sub(w, theta) | algorithms/multi_task/test_pfedme.py
algorithms/multi_task/pfedme.py | tree.lerp(w, mean, beta) | tree.lerp(mean, w, beta) | algorithms/multi_task/test_pfedme.py
algorithms/multi_task/fedamp.py | 1 - jnp.sum(xi) | jnp.sum(xi) | algorithms/multi_task/test_fedamp.py
algorithms/global_model/scaffold.py | tree.sub(c, c_k) | tree.sub(c_k, c) | algorithms/global_model/test_scaffold.py
algorithms/global_model/scaffold.py | cohort.mask.sum() / cohort.num_clients | 1.0 | algorithms/global_model/test_scaffold.py
algorithms/global_model/feddyn.py | tree.axpy(-share, change, server.h) | tree.axpy(share, change, server.h) | algorithms/global_model/test_feddyn.py
algorithms/global_model/fedprox.py | tree.axpy(mu, pull, slope) | tree.axpy(-mu, pull, slope) | algorithms/global_model/test_fedprox.py
algorithms/meta_learning/per_fedavg.py | 1 / (2 * delta) | 1 / delta | algorithms/meta_learning/test_per_fedavg.py
algorithms/distillation/fedakt.py | + lam * fmd_grad_scale * gap | + fmd_grad_scale * gap | algorithms/distillation/test_fedakt.py
algorithms/distillation/feddf.py | total / jnp.maximum(count, 1) | total | algorithms/distillation/test_feddf.py
channel/sparse.py | 1 if feedback else flat.size / count | 1 | channel/test_compressing.py channel/test_channel.py
channel/quantised.py | (number / levels) | (number / (levels + 1)) | channel/test_compressing.py
channel/clipping.py | norm / jnp.maximum(length, norm) | 1 / jnp.maximum(length, norm) | channel/test_private.py channel/test_channel.py
channel/private.py | -rate * (share - quantile) | rate * (share - quantile) | channel/test_private.py
channel/robust.py | (rank >= cut) | (rank > cut) | core/test_aggregation.py
channel/losing.py | jax.random.uniform(client_key) >= share | jax.random.uniform(client_key) < share | channel/test_robust.py
engine/clock.py | is_late = seconds > clock.deadline | is_late = seconds >= clock.deadline | engine/test_clock.py
engine/clock.py | jnp.minimum(seconds, clock.deadline) | seconds | engine/test_clock.py
engine/clock.py | jnp.exp(profile.jitter * noise) | jnp.exp(-profile.jitter * noise) | engine/test_clock.py engine/test_events.py
engine/events.py | concurrency + buffer - 1 | concurrency + buffer - 2 | engine/test_events.py engine/test_asynchronous.py
engine/events.py | self.number - job.version | self.number - job.version + 1 | engine/test_events.py engine/test_asynchronous.py
engine/plan.py | .sum(1) * first | .sum(1) | engine/test_rounds.py selection/test_selection.py
engine/rounds.py | cohort.mask.sum() > 0, server, state.server | cohort.mask.sum() >= 0, server, state.server | engine/test_rounds.py engine/test_clock.py
engine/plan.py | learned, cohort_key(key, round_) | learned, cohort_key(key, round_ + 1) | selection/test_power_of_choice.py
selection/oort.py | jnp.minimum(late, 1) ** penalty | jnp.minimum(late, 1) ** -penalty | selection/test_oort.py
selection/oort.py | finished = state.round + 1 | finished = state.round | selection/test_oort.py
selection/tifl.py | num_clients // tiers | num_clients // tiers + 1 | selection/test_tifl.py
selection/stragglers.py | jnp.arange(selection.cohort) < count | jnp.arange(selection.cohort) <= count | selection/test_selection.py selection/test_laws.py
core/training.py | jnp.floor(factor * steps + 0.5) | jnp.floor(factor * steps) | core/test_training.py
core/aggregation.py | cohort.weight * cohort.mask | cohort.weight | core/test_aggregation.py engine/test_rounds.py
core/shuffle.py | return value, value >= size | return value, value > size | core/test_shuffle.py
core/minibatches.py | step % per_epoch * batch_size | step * batch_size | core/test_minibatches.py
core/adaptive_server.py | (1 - b2) * square * jnp.sign(v - square) | (1 - b2) * square | core/test_server_step.py
core/losses.py | tree.square_norm(shift) / 2 | tree.square_norm(shift) | core/test_losses.py algorithms/multi_task/test_ditto.py
simulate/stopping.py | len(goodness) - 1 - int | len(goodness) - int | simulate/test_patience.py
runs/checkpoint.py | _crc(state) not in (meta.crc, None) | False | runs/test_checkpoint.py
data/split.py | size - test_size - validation_size | size - test_size | data/test_federation.py data/partitions
data/label_noise.py | rate / (num_classes - 1) | rate / num_classes | data/test_label_noise.py
evaluation/significance.py | max(1 + clients / 20, ratio) | 1.0 | evaluation/test_significance.py
"""  # noqa: E501


def main() -> None:
    """Tries the mutations of files whose path has one of the arguments, or all."""
    lines = [line.split(" | ") for line in MUTATIONS.strip().splitlines()]
    names = sys.argv[1:] or [""]
    chosen = [line for line in lines if any(name in line[0] for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
        for name in tracked.splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        unnoticed = [line for line in chosen if not is_noticed(copy, *line)]
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} mutations are noticed")
    sys.exit(bool(unnoticed))


def is_noticed(copy: Path, name: str, code: str, mutation: str, tests: str) -> bool:
    """Whether the tests fail with the mutation, which the copy has only meanwhile."""
    file = copy / "pfljax" / name
    text = file.read_text()
    if text.count(code) != 1:
        print(
            f"{name} has {code!r} {text.count(code)} times: mend the list", flush=True
        )
        return False
    file.write_text(text.replace(code, mutation, 1))
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow"]
    command += [f"tests/{test}" for test in tests.split()]
    env = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    file.write_text(text)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    if done.returncode == 0:
        print(f"{name}: nothing notices {mutation!r}", flush=True)
    return done.returncode == 1


if __name__ == "__main__":
    main()
