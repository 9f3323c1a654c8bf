"""`python -m pfljax` is `pfljax`."""

from pfljax.cli import main

main()
