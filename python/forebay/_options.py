# SPDX-License-Identifier: Apache-2.0
"""Options as they are handed to the extension module: generated from interface/forebay.toml by scripts/generate_faces.py: change it there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from forebay import _arrays, _assign, _choices, _contract, _forebay, _given, _plain


def producer(
    *,
    group: str | os.PathLike[str] | None,
    rank: int,
    size: int,
    policy: _choices.Policy,
    keep: int,
    timeout: float,
    transport: _choices.Transport,
    on_loss: _choices.OnLoss,
    placement: _given.Placement,
    continues: tuple[int, int] | None,
    queue_bytes: int,
    replicas: int,
    durability: _choices.Durability,
    wait_for_readers: int,
    job: str | None,
    name: str | None,
    first: int,
    stride: int,
) -> _forebay.ProducerOptions:
    """How to open a producer."""
    return {
        "group": _given.group(group),
        "rank": _arrays.integer(rank, "rank", bits=32),
        "size": _arrays.integer(size, "size", bits=32),
        "policy": policy,
        "keep": _arrays.integer(keep, "keep", bits=32),
        "timeout": timeout,
        "transport": transport,
        "on_loss": on_loss,
        "placement": _given.placement(placement),
        "continues": _given.run_step(continues, "continues"),
        "queue_bytes": _arrays.integer(queue_bytes, "queue_bytes"),
        "replicas": _arrays.integer(replicas, "replicas", bits=32),
        "durability": durability,
        "wait_for_readers": _arrays.integer(wait_for_readers, "wait_for_readers", bits=32),
        "job": job,
        "name": name,
        "first": _arrays.integer(first, "first"),
        "stride": _arrays.integer(stride, "stride"),
    }


def consumer(
    *,
    group: str | os.PathLike[str] | None,
    fields: _contract.Fields,
    timeout: float,
    transport: _choices.Transport,
    every: int,
    window: int,
    follow: bool,
    start: _choices.Start | tuple[int, int],
    pin_bytes: int,
    take: _choices.Take,
    name: str | None,
    rank: int,
    size: int,
    on_loss: _choices.OnRankLoss,
    assign: _assign.Assign,
    share: _choices.Share,
) -> _forebay.ConsumerOptions:
    """How to open a consumer."""
    return {
        "group": _given.group(group),
        "fields": _contract.as_needs(fields),
        "timeout": timeout,
        "transport": transport,
        "every": _arrays.integer(every, "every", low=1, bits=32),
        "window": _arrays.integer(window, "window", low=1, high=1024),
        "follow": follow,
        "start": _given.start(start),
        "pin_bytes": _arrays.integer(pin_bytes, "pin_bytes"),
        "take": take,
        "name": name,
        "rank": _arrays.integer(rank, "rank", bits=32),
        "size": _arrays.integer(size, "size", low=1, high=65536),
        "on_loss": on_loss,
        "assign": _assign.name_of(assign),
        "share": share,
    }


def space(
    *,
    group: str | os.PathLike[str] | None,
    timeout: float,
    transport: _choices.Transport,
    replicas: int,
    name: str | None,
) -> _forebay.SpaceOptions:
    """How to open a space."""
    return {
        "group": _given.group(group),
        "timeout": timeout,
        "transport": transport,
        "replicas": _arrays.integer(replicas, "replicas", low=1, high=8),
        "name": name,
    }


def admin(
    *,
    group: str | os.PathLike[str] | None,
    timeout: float | None,
    transport: _choices.Transport,
    name: str | None,
) -> _forebay.AdminOptions:
    """How to look after a group."""
    return {
        "group": _given.group(group),
        "timeout": timeout,
        "transport": transport,
        "name": name,
    }


def field(
    name: str,
    ndim: int,
    *,
    association: _choices.Association,
    every: int,
    dims: Sequence[str],
    spacing: float | Sequence[float],
    origin: float | Sequence[float],
    units: str,
    periodic: bool | Sequence[bool],
    refinement: int | Sequence[int],
    static: bool,
) -> _forebay.FieldOptions:
    """What is said of a field beside its name, type and shape."""
    return {
        "association": association,
        "every": _arrays.integer(every, "every", low=1, bits=32),
        "dims": list(dims),
        "spacing": _plain.numbers(spacing, ndim, f"field '{name}': spacing"),
        "origin": _plain.numbers(origin, ndim, f"field '{name}': origin"),
        "units": units,
        "periodic": _arrays.flags(periodic, ndim, f"field '{name}': periodic"),
        "refinement": _arrays.counts(refinement, ndim, f"field '{name}': refinement"),
        "is_static": static,
    }
