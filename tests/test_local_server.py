"""The servers of the tests do not disturb each other, and say what ails them."""

from __future__ import annotations

import shutil
import socket

import pytest
from local_server import TorchServe, free_ports


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_a_free_port_is_a_servers_and_nobody_elses_also_before_it_listens(option: int) -> None:
    (port,) = free_ports(1)
    for _ in range(2):  # a server may be started again
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            socket.create_connection(("127.0.0.1", port)).close()


def test_a_server_that_cannot_start_says_why_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = TorchServe(properties={"management_address": f"http://127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(AssertionError, match="Failed to bind"), server:
            pass
        shutil.rmtree(server.root)  # kept, to be looked at
