"""Programs under a filter of system calls, as containers and hardened machines have them."""

from __future__ import annotations

import errno
import sys

# Of x86-64, whose numbers these are.
CALLS = {
    "memfd_create": 319,
    "pidfd_open": 434,
    "pidfd_send_signal": 424,
    "flock": 73,
    "link": 86,
    "linkat": 265,
    "fallocate": 285,
    "ftruncate": 77,
    "madvise": 28,
    "getrandom": 318,
    "timerfd_create": 283,
    "eventfd2": 290,
    "epoll_pwait2": 441,
    "statx": 332,
    "unshare": 272,
}
SEALS = "fcntl seals"
"""In place of a call: fcntl with F_ADD_SEALS."""

PROGRAM = r"""
import ctypes, os, struct, sys
fails, wanted, *command = sys.argv[1:]
LOAD, JEQ, RET = 0x20, 0x15, 0x06
ERRNO, ALLOW = 0x00050000 | int(fails), 0x7FFF0000
def statement(code, k): return struct.pack("HBBI", code, 0, 0, k)
def unless_equal(k, skip): return struct.pack("HBBI", JEQ, 0, skip, k)
program = b""
for call in wanted.split(","):
    program += statement(LOAD, 0)
    if call == "seals":
        # fcntl(fd, F_ADD_SEALS, ...): its second argument.
        program += unless_equal(72, 3) + statement(LOAD, 24) + unless_equal(1033, 1) + statement(RET, ERRNO)
    else:
        program += unless_equal(int(call), 1) + statement(RET, ERRNO)
program += statement(RET, ALLOW)
filter = ctypes.create_string_buffer(program)
class Fprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
fprog = Fprog(len(program) // 8, ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0) == 0, ctypes.get_errno()
os.execvp(command[0], command)
"""


def refusing(*calls: str, error: int = errno.EPERM) -> list[str]:
    """What stands before a command that is to be refused these system calls, with this error."""
    numbers = ["seals" if call == SEALS else str(CALLS[call]) for call in calls]
    return [sys.executable, "-c", PROGRAM, str(error), ",".join(numbers)]
