# SPDX-License-Identifier: Apache-2.0
"""Administration of a group."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from forebay import _choices, _forebay, _options
from forebay._arrays import integer
from forebay._errors import Invalid, PipelineFailed, Timeout, Unreachable, by_name
from forebay._installed import command_path
from forebay.status import GroupStatus, StreamContracts, SubscriptionStatus

# How long a pipeline's code may take to be loaded unless somebody says otherwise.
_LOAD_TIMEOUT = 120.0


class Admin:
    """Looks after a group: status, servers, pipelines, ending. Servers are named by their numbers.

    Opening it finds the group, and waits for one that is forming: `ConnectionFile` if there is none. Each call connects.

    Parameters
    ----------
    group:
        The group: a connection file's path, a group's name, or the file's text; by default FOREBAY_GROUP
        says.
    timeout:
        Seconds that each call may take. By default 30; 3 for a status; and 120 each for loading a
        pipeline's code and for starting its workers.
    transport:
        How blocks travel: `"auto"` (shared memory where the server is on this host, else TCP), `"shm"` or
        `"tcp"`.
    name:
        What this handle is called by `status` and in logs; by default its host and process say which it is.
    """

    def __init__(
        self,
        *,
        # generated from interface/forebay.toml: options admin
        group: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        transport: _choices.Transport = "auto",
        name: str | None = None,
        # end of what is generated
    ) -> None:
        # generated from interface/forebay.toml: given admin
        given = _options.admin(group=group, timeout=timeout, transport=transport, name=name)
        # end of what is generated
        _forebay.find_group(given)
        self._given = given

    def status(self) -> GroupStatus:
        """What the servers say of themselves, of streams and of pipelines, as `docs/status.md` describes.

        Waits for all servers, with one deadline; one that does not answer has an `error`.
        """
        told: GroupStatus = json.loads(_forebay.status(self._given))
        return told

    def contracts(self, stream: str) -> StreamContracts:
        """What a stream's latest run offers, and what of it each reader and pipeline needs.

        For each field: at which steps, which part, how many bytes a step, when it last matched, and what was staged for all
        together. `docs/status.md` describes the members. Waits for the server that coordinates the stream; `NotFound` if none
        knows it.
        """
        told: StreamContracts = json.loads(_forebay.contracts(self._given, stream))
        return told

    def subscriptions(self) -> list[SubscriptionStatus]:
        """All subscriptions, by stream and name: what each watches for, how often what has happened, and what it has cost.

        `docs/status.md` describes the members. Waits for all servers; those that cannot be reached are left out.
        """
        told: list[SubscriptionStatus] = json.loads(_forebay.subscriptions(self._given))
        return told

    def pause_subscription(self, name: str, *, stream: str | None = None) -> None:
        """Nothing is evaluated of a subscription until it is resumed, whoever has made it.

        `stream` is needed only where subscriptions of several streams have the name. `NotFound` names those that there are.
        """
        _forebay.change_subscription(self._given, name, stream, "pause")

    def resume_subscription(self, name: str, *, stream: str | None = None) -> None:
        """A subscription goes on with the next step."""
        _forebay.change_subscription(self._given, name, stream, "resume")

    def remove_subscription(self, name: str, *, stream: str | None = None) -> None:
        """A subscription ends, for all who listen to it."""
        _forebay.change_subscription(self._given, name, stream, "remove")

    def create_pipeline(
        self,
        name: str,
        code: str | type | Callable[..., object],
        *,
        stream: str | None = None,
        config: Mapping[str, object] | None = None,
        driven: bool = False,
        on: str | None = None,
        python: str = sys.executable,
    ) -> None:
        """Gives every server a worker that runs `code`: `"file.py:Class"`, or a class defined in a file. A function of a file may stand in
        its place: `function(step)` is called in one worker, `function(step, comm)` in all.

        It runs on `stream`; by default on the one that the class names, or the only one that the group has.
        It runs on each closed step by itself; or, if `driven`, when the simulation's ranks say so through a
        `PipelineHandle`; or at the events of the subscription of the stream that has the name `on`, and then it needs what that
        watches, unless its class says otherwise. Waits until every worker is ready, or raises `PipelineFailed` with the traceback. With `timeout` all of
        this takes no longer, else loading the code and starting the workers up to 120 s each; beyond, it raises
        `Timeout`. After an error there is no such pipeline.
        """
        if not isinstance(code, str) and hasattr(code, "__qualname__"):
            source = inspect.getsourcefile(code)
            if source is None:
                raise Invalid(f"{code!r} was not defined in a file")
            code = f"{source}:{code.__qualname__}"
        if not isinstance(code, str):
            raise Invalid(f"code={code!r}: give FILE.py:CLASS, or the class or function")
        file, _, class_name = code.rpartition(":")
        if not file or not class_name:
            raise Invalid(f"{code!r} does not name a pipeline's code: write 'file.py:Class'")
        path = os.path.abspath(file)
        if not os.path.exists(path):
            raise Invalid(f"there is no file {path}")
        command = [python, "-m", "forebay.worker"]
        target = f"{path}:{class_name}"
        told = json.dumps(dict(config or {}))
        given = self._given
        timeout = given["timeout"]
        started = time.monotonic()
        if stream is None:
            stream = self._stream_of(command, target, _LOAD_TIMEOUT if timeout is None else timeout)
        if timeout is not None:
            # What is left: the deadline is one for all of this.
            given = {**given, "timeout": max(1e-9, timeout - (time.monotonic() - started))}
        _forebay.create_pipeline(given, name, stream, command, target, told, os.getcwd(), driven, on)

    def _stream_of(self, command: list[str], target: str, timeout: float) -> str:
        """The stream that a pipeline's class names, or the only one that the group has."""
        # In a process of its own: the code may need another Python, or do things at import. Not over pipes,
        # which what the code starts may keep open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    [*command, "--describe", "--code", target],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    timeout=timeout,
                )
            except subprocess.TimeoutExpired:
                raise Timeout(
                    f"{target} was not loaded within {timeout:g} s: does it wait for something when it is "
                    "imported? Say with stream= which stream it runs on, or give it longer with timeout="
                ) from None
            out.seek(0)
            errors.seek(0)
            if done.returncode != 0:
                why = errors.read().decode(errors="replace").strip()
                raise PipelineFailed(why or f"{target} cannot be loaded")
            named: str | None = json.loads(out.read().splitlines()[-1])["stream"]
        if named is not None:
            return named
        streams = [stream["name"] for stream in self.status()["streams"]]
        if len(streams) != 1:
            there = f"the group has {', '.join(streams)}" if streams else "the group has none yet"
            raise Invalid(f"say which stream the pipeline runs on: its class names none, and {there}")
        return str(streams[0])

    def add_servers(self, count: int = 1) -> list[int]:
        """Starts more servers of the group on this machine, in the background; returns their numbers.

        Waits until they are members. Nothing that runs is held up. As `forebay add` does, and with the same errors.
        """
        given = self._given
        command = [command_path(), "--json", "--transport", given["transport"]]
        if given["group"] is not None:
            command += ["--group", given["group"]]
        if given["timeout"] is not None:
            command += ["--timeout", str(given["timeout"])]
        command += ["add", str(integer(count, "count", low=1, bits=12))]
        # Not over a pipe, which the servers would keep open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, check=False)
            out.seek(0)
            errors.seek(0)
            told, said = (file.read().decode(errors="replace").strip() for file in (out, errors))
        try:
            answer = json.loads(told)
        except json.JSONDecodeError:
            raise Unreachable(said) from None
        if done.returncode != 0:
            raise by_name(answer["error"], answer["text"], answer.get("server"))
        added: list[int] = answer["added"]
        return added

    def remove_server(self, server: int, *, discard: bool = False) -> None:
        """Has a server leave the group and end: 2 is what `forebay status` shows as server2.

        What it holds, its ranks and workers go to the others first; readers and the simulation go on there. Waits
        until all of that is done and the group has agreed, no longer than `timeout`: then it raises `Timeout`, or
        `Full` where the others have no room, and the server stays. The last server that holds something, or has
        ranks, is refused (`Conflict`) unless `discard`, which gives up what no other server can hold.
        """
        _forebay.remove_server(self._given, integer(server, "server", bits=32), discard)

    def heal(self, *, force: bool = False) -> tuple[list[int], list[int]]:
        """Has the group go on after it lost half of its servers or more at once, which they cannot agree on.

        Returns the numbers of the servers that answer, and of those that do not; only with `force` are the latter
        given up, with what only they held. None of them may still run: what it takes on would be lost. One that is
        seen later comes back as a new server. Raises `Conflict` where more than half answer: those agree by
        themselves. Waits for silent servers, some seconds at most.
        """
        return _forebay.heal(self._given, force)

    def destroy_pipeline(self, name: str) -> None:
        """Ends a pipeline and its workers."""
        _forebay.destroy_pipeline(self._given, name)

    def shutdown(self) -> None:
        """Ends every server of the group. Raises `Timeout` for one that does not answer, once all are told."""
        _forebay.shutdown(self._given)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""


def group_text(group: str | os.PathLike[str] | None = None) -> str:
    """The text of a group's connection file, once the group is complete, for one rank to hand to all others as `group`.

    So a thousand ranks do not open one file, and it need not be visible on every node. It holds the group's secret, and names the file:
    ranks that see it look there for servers that join later.
    """
    return _forebay.group_text(os.fspath(group) if group is not None else None)
