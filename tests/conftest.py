"""Settings of all tests, before JAX starts: compiled on the CPU, quickly."""

import os
import sys

# Programs of the tests run for milliseconds: most of a test's time is compilation.
FAST = "--xla_backend_optimization_level=0"
if sys.version_info < (3, 12):  # jaxlib 0.10; newer ones refuse the flag
    FAST += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ.setdefault("XLA_FLAGS", FAST)
