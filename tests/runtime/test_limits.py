"""What the system allows: little address space is told before it is waited for."""

import pytest

from pfljax.runtime import limits


def test_little_address_space_is_told(monkeypatch):
    limits.check_address_space(2**60)
    monkeypatch.setattr(limits, "address_space", lambda: 2.0**30)
    limits.check_address_space(2**30)
    with pytest.raises(MemoryError, match=r"1\.0 GiB .* expected at least 1\.5: raise"):
        limits.check_address_space(1.5 * 2**30)
