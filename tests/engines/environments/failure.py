"""The one error of this package."""


class EnvironmentFailure(Exception):
    """An environment, model or smoke run failed; the message says what to do about it."""
