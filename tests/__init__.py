"""Tests of servewright; a package, so that tests share code by import (`tests.testbed`, `tests.simulator`)."""
