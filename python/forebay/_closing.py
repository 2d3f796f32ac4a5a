"""How a handle is closed at the end of `with`."""

from __future__ import annotations

from collections.abc import Callable


def is_clean(raised: BaseException | None) -> bool:
    """Whether the body of a `with` has ended as it should: `sys.exit(0)` in it is no failure."""
    return raised is None or (isinstance(raised, SystemExit) and raised.code in (None, 0))


def close_after(close: Callable[[], None], raised: BaseException | None) -> None:
    """Calls `close`. If the body of the `with` raised, that stays what is raised: an error of closing is a note on it."""
    try:
        close()
    except Exception as error:
        if raised is None:
            raise
        raised.add_note(f"closing failed, too: {type(error).__name__}: {error}")
