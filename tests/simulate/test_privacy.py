"""The epsilon of a run, against the RDP of the sampled Gaussian at whole orders."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from pfljax.channel.private import noises
from pfljax.core.components import parse
from pfljax.simulate import components, privacy, run
from pfljax.simulate.federation import build_federation
from pfljax.simulate.shape import make_shape


def oracle(multiplier, delta, share, rounds):
    """Mironov, Talwar, Zhang, 2019, and Canonne, Kamath, Steinke, 2020, by NumPy."""
    bounds = []
    for a in range(2, 257):
        k = np.arange(a + 1)
        binomial = [math.lgamma(a + 1) - math.lgamma(i + 1) - math.lgamma(a - i + 1)
                    for i in k]  # fmt: skip
        log = np.asarray(binomial) + (k**2 - k) / (2 * multiplier**2)
        if share == 1:
            rdp = a / (2 * multiplier**2)
        else:
            log += (a - k) * math.log1p(-share) + k * math.log(share)
            rdp = np.logaddexp.reduce(log) / (a - 1)
        slack = math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
        bounds.append(rounds * rdp + slack)
    return min(bounds)


@pytest.mark.parametrize(
    ("multiplier", "delta", "share", "rounds"),
    [(1.0, 1e-5, 0.1, 100), (1.0, 1e-5, 1.0, 10), (2.0, 1e-6, 0.05, 1000)],
)
def test_epsilon_against_numpy(multiplier, delta, share, rounds):
    pytest.importorskip("dp_accounting", reason="pip install pfljax[privacy]")
    found = privacy.epsilon(multiplier, delta, share, rounds)
    assert found == pytest.approx(oracle(multiplier, delta, share, rounds), rel=1e-4)
    less = privacy.epsilon(1e4 * multiplier, delta, share, rounds)
    assert less is not None
    assert less < 0.1


def test_channels_with_noise_at_the_server_are_found():
    def mechanism(*names):
        return privacy.find_mechanism(tuple(parse(name) for name in names))

    assert mechanism("clip", "median") is None
    assert mechanism("gaussian") is None  # at the client: gives no bound of the sum
    assert mechanism("adaptive_clip") is None
    assert mechanism("dp:multiplier=0") is None
    assert mechanism("lost", "dp:multiplier=2,delta=1e-6") == (2.0, 1e-6)
    assert mechanism("adaptive_clip:multiplier=0.5") == (0.5, 1e-5)


def setting_of(job):
    federation, _ = build_federation(job)
    shape = make_shape(job, federation)
    return components.make_setting(job, components.make_task(job, shape), shape)


def test_each_exchange_of_a_round_is_counted(monkeypatch):
    """Two messages of a client in a round are two sums with noise."""
    job = tiny.TINY.replace(algorithm="fedavg", rounds=7, channel=["dp"])
    setting = setting_of(job)
    monkeypatch.setattr(privacy, "epsilon", lambda *given: given[-1])

    def charged(algorithm):
        twice = setting._replace(algorithm=algorithm)
        return privacy.privacy_summary(twice, job, 6)["privacy"]["epsilon"]

    once = setting.algorithm
    assert (charged(once), charged(once._replace(then=once))) == (7, 14)


def test_the_noise_of_the_norm_is_accounted_for():
    """Andrew et al.: sum and count, as two mechanisms, are one of the multiplier."""
    dp = pytest.importorskip("dp_accounting", reason="pip install pfljax[privacy]")
    count, of_sum = noises(1.0, jnp.float32(10))
    both = (float(of_sum) ** -2 + (float(count) / 0.5) ** -2) ** -0.5
    accountant = dp.pld.PLDAccountant()
    event = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(both))
    accountant.compose(event, 100)
    exact = accountant.get_epsilon(1e-5)
    bound = privacy.epsilon(1.0, 1e-5, 0.1, 100)
    assert bound is not None
    assert exact <= bound <= 1.2 * exact


@pytest.mark.slow
def test_a_run_says_what_it_gives_away(tmp_path, monkeypatch, capsys):
    """With the accountant and without; other selections than by chance: no share."""
    job = tiny.TINY.replace(
        algorithm="fedavg", rounds=2, channel=["dp:norm=0.5,multiplier=2.0"]
    )
    monkeypatch.setattr(privacy, "epsilon", lambda *given: 100.0 + given[2])
    run.run(job.replace(out=str(tmp_path / "a")), quiet=True, report=False)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["privacy"] == {
        "epsilon": 100.5, "delta": 1e-5, "multiplier": 2.0, "sampled": 0.5, "rounds": 2,
    }  # fmt: skip
    monkeypatch.setattr(privacy, "epsilon", lambda *given: None)
    job = job.replace(selection="round_robin")
    summary = privacy.privacy_summary(setting_of(job), job, 6)
    assert (summary["privacy"]["epsilon"], summary["privacy"]["sampled"]) == (None, 1.0)
    assert "dp-accounting is not installed" in capsys.readouterr().err
