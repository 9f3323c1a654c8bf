"""`python -m pfljax` is `pfljax`."""

from pfljax.cli.main import main

main()
