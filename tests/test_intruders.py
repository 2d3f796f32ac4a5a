"""Processes of other users of the host, without the secret, at both ends of local sockets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.children import Child
from support.groups import edited
from support.sessions import check_it_works, consumer, producer
from support.spoiling import VERSION, addresses

import forebay

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")

NOBODY = 65534


def test_a_process_of_another_user_is_refused(one: forebay.LocalGroup, child: Callable[..., Child]) -> None:
    """Whatever it says: here an opening of the right form."""
    (name,) = addresses(one)["shm"]
    stranger = child(
        """
        import socket, struct
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(15)
            made.connect("\\0" + sys.argv[1])
            made.sendall(b"FOREBAY\\n" + struct.pack("<HH", int(sys.argv[2]), 48) + bytes(48))
            answer = made.recv(1000)
            print(answer[10], answer[13:].decode())
            print(made.recv(1000))
        """,
        str(name)[1:],
        str(VERSION),
    )
    code, _, text = stranger.line().partition(" ")
    assert int(code) == forebay.ConnectionFile.code
    assert f"user {NOBODY}, not to user 0" in text
    stranger.expect("b''")
    stranger.ended()
    check_it_works(one)


def test_a_name_that_another_user_has_taken(
    one: forebay.LocalGroup, own_place: Path, child: Callable[..., Child]
) -> None:
    """Names of local sockets are free for anybody once their server is gone: nothing is said to who has one."""
    name = f"forebay-taken-{os.getpid()}"
    squatter = child(
        """
        import socket
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\\0" + sys.argv[1])
            listener.listen()
            listener.settimeout(15)
            print("listens")
            for _ in range(2):
                made, _ = listener.accept()
                with made:
                    print(made.recv(1000))
        """,
        name,
    )
    squatter.expect("listens")
    host = local_address(one).rpartition("/")[0]
    server = {"id": 0, "pid": 1, "addresses": [f"{host}/{name}"]}
    path = edited(one, own_place / "taken.json", servers=[server], size=1)
    for use in (consumer, producer):
        with pytest.raises(forebay.ConnectionFile, match=f"server0.*user {NOBODY}, not to user 0"):
            use(path)
        squatter.expect("b''")
    squatter.ended()


def local_address(group: forebay.LocalGroup) -> str:
    """The local address of the group's only server, as the connection file has it."""
    with forebay.Admin(group=group.path) as admin:
        found: list[str] = admin.status()["servers"][0]["addresses"]
    return next(address for address in found if address.startswith("shm:"))
