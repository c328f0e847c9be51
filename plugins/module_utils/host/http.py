"""A small HTTP client for the engine on this host: JSON in, JSON out, always with a bound on time."""

from __future__ import annotations

import http.client
import json
import socket
import time


class HttpError(Exception):
    """No answer, or one that is not a success. `status` is 0 when there was no answer."""

    def __init__(self, message, status=0):
        super().__init__(message)
        self.status = status


class Client:
    """Requests to one server. `key` goes into the Authorization header."""

    def __init__(self, host, port, key=None, timeout=10.0):
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self.port = port
        self.timeout = timeout
        self.headers = {"Authorization": "Bearer " + key} if key else {}

    def request(self, method, path, body=None, timeout=None):
        """(status, body bytes). Raises HttpError when there is no whole answer within `timeout` seconds."""
        seconds = timeout or self.timeout
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        end = time.monotonic() + seconds
        try:
            headers = dict(self.headers)
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, _body(answer, end)
        except socket.timeout:
            raise HttpError(f"{method} {path}: no answer within {seconds:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise HttpError(f"{method} {path}: {error or type(error).__name__}") from None
        finally:
            connection.close()

    def events(self, method, path, body, timeout=None):
        """Server-sent events of an answer as they come: (moment on the monotonic clock, data).

        Events that came together have one moment. Raises HttpError like json().
        """
        seconds = timeout or self.timeout
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        end, answer, rest = time.monotonic() + seconds, None, b""
        try:
            headers = {**self.headers, "Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                raise _refused(method, path, answer.status, _body(answer, end))
            while True:
                data = answer.read1(1 << 16)
                moment = time.monotonic()
                *lines, rest = (rest + (data or b"\n")).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        yield moment, line[5:].strip().decode("utf-8", "replace")
                if not data:
                    return
                _in_time(end)
        except socket.timeout:
            raise HttpError(f"{method} {path}: no whole answer in time ({seconds:g} s)") from None
        except (OSError, http.client.HTTPException) as error:
            what = "" if answer is None else "the answer broke off: "
            raise HttpError(f"{method} {path}: {what}{error or type(error).__name__}") from None
        finally:
            connection.close()

    def text(self, path, timeout=None):
        """The text of a successful answer to GET. Raises HttpError otherwise."""
        status, data = self.request("GET", path, timeout=timeout)
        if not 200 <= status < 300:
            raise _refused("GET", path, status, data)
        return data.decode("utf-8", "replace")

    def json(self, method, path, body=None, timeout=None):
        """The JSON of a successful answer. Raises HttpError otherwise."""
        status, data = self.request(method, path, body, timeout)
        if not 200 <= status < 300:
            raise _refused(method, path, status, data)
        try:
            return json.loads(data.decode())
        except ValueError:
            raise HttpError(f"{method} {path}: the answer is not JSON", status) from None

    def first(self, paths):
        """JSON of the first of several paths that this version of the engine has. Raises HttpError of the last."""
        for path in paths[:-1]:
            try:
                return self.json("GET", path)
            except HttpError as error:
                if error.status != 404:
                    raise
        return self.json("GET", paths[-1])


def _body(answer, end):
    """The whole body of an answer. Raises socket.timeout when it goes on after `end`, on the monotonic clock.

    Until Python 3.13 read1() neither counts what it gave nor tells when the body is cut short.
    """
    wanted, data = answer.length, b""  # None: its end is told otherwise
    while wanted is None or len(data) < wanted:
        piece = answer.read1(1 << 16)
        if not piece and wanted is None:
            break
        if not piece:
            raise http.client.IncompleteRead(data, wanted - len(data))
        data += piece
        _in_time(end)
    return data


def _in_time(end):
    """A socket's own bound starts anew with every byte."""
    if time.monotonic() > end:
        raise socket.timeout


def _refused(method, path, status, data):
    return HttpError("%s %s: status %d: %s" % (method, path, status, data[:200].decode("utf-8", "replace")), status)
