"""The client against servers that answer badly."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.http import Client, HttpError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n"


@pytest.fixture
def answering():
    """Gives a client of a server that answers one request with some pieces, each after a pause of seconds."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve(pieces, pause):
            connection, _address = server.accept()
            with connection:
                connection.recv(1 << 16)
                for piece in pieces:
                    try:
                        connection.sendall(piece)
                    except OSError:
                        return  # the client has had enough
                    time.sleep(pause)

        def start(*pieces, pause=0.0):
            threading.Thread(target=serve, args=(pieces, pause), daemon=True).start()
            return Client("127.0.0.1", server.getsockname()[1])

        yield start


def test_an_answer_that_trickles_is_not_waited_for_beyond_the_bound(answering):
    """Each byte comes within the bound; all of them would take three seconds."""
    client, begin = answering(HEAD + b"\r\n", *[b" "] * 30, pause=0.1), time.monotonic()
    with pytest.raises(HttpError, match=r"no answer within 0\.5 s"):
        client.request("GET", "/x", timeout=0.5)
    assert time.monotonic() - begin < 1.5


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b"\r\n", b"a" * 10, b"b" * 20),
        (HEAD + b"Connection: close\r\n\r\n" + b"a" * 10 + b"b" * 20,),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 10 + b"b" * 20),  # until the server hangs up
        (HEAD.replace(b"Content-Length: 30", b"Transfer-Encoding: chunked") + b"\r\na\r\n",
         b"a" * 10 + b"\r\n14\r\n" + b"b" * 20, b"\r\n0\r\n\r\n"),
    ],
)  # fmt: skip
def test_a_body_is_read_whole_however_its_length_is_told(answering, pieces):
    assert answering(*pieces, pause=0.05).request("GET", "/x", timeout=5) == (200, b"a" * 10 + b"b" * 20)


def test_a_connection_that_stays_open_is_not_waited_for(answering):
    """The length says where the body ends."""
    begin = time.monotonic()
    assert answering(HEAD + b"\r\n" + b"a" * 30, b"", pause=2).request("GET", "/x", timeout=5)[1] == b"a" * 30
    assert time.monotonic() - begin < 1.5


def test_a_body_that_is_cut_short_is_no_answer(answering):
    with pytest.raises(HttpError, match="IncompleteRead"):
        answering(HEAD + b"\r\n" + b"a" * 10).request("GET", "/x", timeout=5)
