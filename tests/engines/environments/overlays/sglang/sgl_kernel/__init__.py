"""Test double of SGLang's compiled kernels, which need a GPU or AMX; `--attention-backend torch_native` calls none."""

import servewright_test_double

__version__ = "0.4.10"  # what SGLang 0.5.23 declares as its requirement

servewright_test_double.double(__name__)
