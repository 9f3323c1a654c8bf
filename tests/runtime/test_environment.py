"""The record of a run's machine in environment.json."""

from pfljax.runtime import environment


def test_a_package_that_is_on_the_path_alone(monkeypatch):
    """A source tree that was copied to a cluster has no version of its own."""
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "no-such-package"))
    packages = environment.now()["packages"]
    assert packages["no-such-package"] == "not installed"
    assert packages["numpy"][0].isdigit()
