"""The command line of pfljax, which here also knows the forms of SuPerFed's code.

python experiments/superfed_kdd22/cli.py run --model twonn_superfed ...
"""

import forms  # noqa: F401  makes them known

from pfljax.cli.main import main

if __name__ == "__main__":
    main()
