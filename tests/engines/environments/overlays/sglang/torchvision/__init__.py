"""Test double of torchvision, which SGLang imports for image models and whose wheels do not load beside this torch."""

import servewright_test_double

__version__ = "0.0.0"

servewright_test_double.double(__name__)
