"""What a group says of itself: its members, what they hold, who coordinates what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forebay
from support.sessions import consumer

BUDGET = 256 << 20
"""Bytes of blocks that each server of a test may hold: far less than the machine has."""


def group_status(group: Any) -> dict[str, Any]:
    """What `Admin.status` says of the group, which is given as such or by its path."""
    with forebay.Admin(group=getattr(group, "path", group), timeout=10) as admin:
        return admin.status()


def server_ids(group: Any) -> list[int]:
    """The members, as the connection file tells them."""
    file = json.loads(Path(getattr(group, "path", group)).read_text())
    return [server["id"] for server in file["servers"]]


def server_numbers(group: forebay.LocalGroup) -> list[int]:
    """The members, as the servers tell them."""
    return [server["server"] for server in group_status(group)["servers"]]


def pid_of_server(group: forebay.LocalGroup, number: int) -> int:
    """The process of the server with this number: servers join in any order."""
    return next(int(server["pid"]) for server in group_status(group)["servers"] if server["server"] == number)


def server_status(group: forebay.LocalGroup, number: int = 0) -> dict[str, Any]:
    """What one server says of itself."""
    with forebay.Admin(group=group.path, timeout=10) as admin:
        found: dict[str, Any] = admin.status()["servers"][number]
    return found


def stream_status(group: forebay.LocalGroup, name: str) -> dict[str, Any] | None:
    """What the stream's coordinator says of it; None if there is no such stream (any more)."""
    with forebay.Admin(group=group.path, timeout=10) as admin:
        return next((stream for stream in admin.status()["streams"] if stream["name"] == name), None)


def open_ranks_of(group: forebay.LocalGroup, name: str) -> int:
    """How many ranks of a stream's latest run are open."""
    status = stream_status(group, name)
    return 0 if status is None else int(status["ranks"]["open"])


def total(group: forebay.LocalGroup, key: str) -> int:
    """The sum over all servers of what each says under this key."""
    with forebay.Admin(group=group.path, timeout=10) as admin:
        return sum(server.get(key, 0) for server in admin.status()["servers"])


def is_given_back(group: forebay.LocalGroup) -> bool:
    """Whether nothing is staged, on any server."""
    return total(group, "staged_bytes") == 0


def steps_lacking_copies(group: Any) -> int:
    """How many steps have too few copies."""
    servers = group_status(group)["servers"]
    return sum(server.get("steps_lacking_copies", 0) for server in servers)


def stream_coordinated_by(group: forebay.LocalGroup, server: int) -> str:
    """A stream's name that this server coordinates."""
    for number in range(100):
        name = f"name{number}"
        with consumer(group, name):
            found = next(
                stream["server"] for stream in group_status(group)["streams"] if stream["name"] == name
            )
        if found == server:
            return name
    raise AssertionError(f"no name falls to server {server}")


def edited(group: forebay.LocalGroup, path: Path, **changes: object) -> str:
    """A copy of the group's connection file with changes."""
    content = json.loads(Path(group.path).read_text())
    content.update(changes)
    content["homes"] = [server["id"] for server in content["servers"]]
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return str(path)
