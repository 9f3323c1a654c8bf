"""The laws that every method must satisfy, and small federations to check them."""

from pfljax.conformance.suite import Verdict as Verdict
from pfljax.conformance.suite import check as check
from pfljax.conformance.suite import run as run
from pfljax.conformance.trial import Case as Case
