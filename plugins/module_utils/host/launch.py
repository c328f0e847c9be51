"""Starting a transaction. The caller holds the lock of the service."""

from __future__ import annotations

from . import library, preflight, releases, transaction


def launch(service, number, command, requester, reason, **facts):
    """Begin the transaction to a release; gives what it adds to a result."""
    pointer = releases.committed(service)
    previous = pointer["release"] if pointer else None
    origin = {"command": command, "requester": requester, "reason": reason}
    transaction_number = transaction.begin(service, release=number, previous=previous, **origin, **facts)
    transaction.launch(service, transaction_number)
    return {"verdict": "running", "transaction": transaction_number, "release": number, "previous": previous}


def restart(service, number, command, requester, reason, notes):
    """Begin to start a committed release again, if preflight lets it; gives what it adds to a result: `running` or
    `refused`. Raises HostError.
    """
    transaction.finish_interrupted([service])
    looked = preflight.checks(releases.load(service, number))
    messages = preflight.refused(looked)
    if messages:
        return {"verdict": "refused", "message": "; ".join(messages), "checks": looked}
    library.install()
    facts = {"displaces": [], "restart": True, "notes": notes}
    return {"checks": looked, **launch(service, number, command, requester, reason, **facts)}
