# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a benchmark, so that it can be told in one line."""


class BenchError(Exception):
    """A benchmark could not be run; the message says why and what to do about it."""


class WrongData(BenchError):
    """What arrived is not what was sent."""
