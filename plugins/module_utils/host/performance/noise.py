"""What noise allows to say: medians, their errors, and how far a new start may lie from earlier ones. Pure functions.

Everything is done on logarithms, so that a drop is a fraction, whatever the unit.
"""

from __future__ import annotations

import math
import statistics

# Student's t for 99 %, one-sided (of a hundred releases as fast as the one before, one is called slower by chance), by
# degrees of freedom, and in the limit of many.
_T = (31.82, 6.96, 4.54, 3.75, 3.36, 3.14, 3.00, 2.90, 2.82, 2.76, 2.72, 2.68, 2.65, 2.62, 2.60, 2.58, 2.57, 2.55, 2.54)
NORMAL = 2.33
KNOWN_FREEDOM = 2  # degrees of freedom from which the spread of a host's own starts is believed
_MEDIAN = math.sqrt(math.pi / 2)  # the error of a median against that of a mean


def t(freedom):
    """Student's t for a number of degrees of freedom, at least 1."""
    return _T[freedom - 1] if freedom <= len(_T) else NORMAL


def error(values):
    """Standard error of the median of positive values, as a fraction of it."""
    if len(values) < 2:
        return math.inf
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    return _MEDIAN * math.sqrt(variance / len(logs))


def precise(values, fraction):
    """True when the error of the median is at most a fraction. Few values must agree better: they may do so by luck."""
    return len(values) > 1 and error(values) * t(len(values) - 1) <= fraction * NORMAL


def spread_of_starts(medians):
    """(standard deviation as a fraction, degrees of freedom) of the medians of successive starts, oldest first.

    From the differences of neighbours (the mean square successive difference): a release that is faster than the one
    before counts once, and not in every start after it.
    """
    logs = [math.log(value) for value in medians]
    squares = [(later - earlier) ** 2 for earlier, later in zip(logs, logs[1:])]
    if not squares:
        return 0.0, 0
    count = len(logs)
    # Neighbouring differences share a start: von Neumann's equivalent degrees of freedom.
    return math.sqrt(sum(squares) / (2 * len(squares))), round(2 * (count - 1) ** 2 / (3 * count - 4))


def allowed(medians, of_reference, tolerance, assumed):
    """Largest drop, as a fraction, that does not yet show that a release is slower.

    `medians` are those of all comparable starts on this host, oldest first, `of_reference` the number of starts that
    the reference is the median of, `tolerance` what is allowed in any case. It is the prediction limit for one more
    start. The host's own spread is used as soon as it is known; until then `assumed`, the standard deviation that is
    to be reckoned with. A host is not held for worse than that before its own starts show it.
    """
    spread, freedom = spread_of_starts(medians)
    width = NORMAL * assumed
    if freedom >= KNOWN_FREEDOM:
        width = min(t(freedom) * spread, NORMAL * max(spread, assumed))
    return max(tolerance, 1 - math.exp(-width * math.sqrt(1 + 1 / of_reference)))


def drop(value, reference, more_is_better):
    """How much worse a value is than a reference, as a fraction; negative when it is better.

    A time that doubles and a rate that halves are both a drop of one half.
    """
    return 1 - (value / reference if more_is_better else reference / value)


def surely_beyond(values, bound, more_is_better):
    """True when the median of the values is worse than a bound and more repeats would not change that."""
    if len(values) < 3:
        return False
    beyond = -math.log(1 - drop(statistics.median(values), bound, more_is_better))
    return beyond > t(len(values) - 1) * error(values)
