"""What every method must hold to: the laws, and small federations to see them on."""

from pfljax.conformance.play import Case as Case
from pfljax.conformance.suite import Verdict as Verdict
from pfljax.conformance.suite import check as check
from pfljax.conformance.suite import run as run
