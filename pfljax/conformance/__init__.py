"""The laws that every method must satisfy, and small federations to check them."""

from pfljax.conformance.play import Case as Case
from pfljax.conformance.suite import Verdict as Verdict
from pfljax.conformance.suite import check as check
from pfljax.conformance.suite import run as run
