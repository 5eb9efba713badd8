"""What a process that reads strangers' files gives up, for good: on Linux, through the kernel's landlock and seccomp.

Landlock leaves it the files of Python and of the system's libraries, to be read; nothing can be written or listed
elsewhere, and no other process can be looked into. Seccomp takes away sockets, other programs, other processes and
signals to them. Both hold for whatever code runs in the process from then on, and cannot be undone. On other systems,
and where a kernel or a container forbids them, `enter` names what stays possible.
"""

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")

# prctl and landlock, as in the kernel's headers.
NO_NEW_PRIVILEGES, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION, PATH_BENEATH = 1, 1
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
# Rights by the version that introduced them: 1 has those up to symbolic links, 2 links across folders, 3 cuts files.
RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14}

# System calls by machine. Those with an "own" are allowed on the process itself.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORBIDDEN = {
    "x86_64": {
        **{"socket": 41, "connect": 42, "accept": 43, "sendto": 44, "bind": 49, "listen": 50, "socketpair": 53},
        **{"fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "accept4": 288, "ptrace": 101, "tkill": 200},
        **{"process_vm_readv": 310, "process_vm_writev": 311, "pidfd_open": 434, "pidfd_getfd": 438, "prlimit64": 302},
        **{"rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "pidfd_send_signal": 424, "setpriority": 141},
        **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "bpf": 321, "perf_event_open": 298},
        **{"mount": 165, "umount2": 166, "unshare": 272, "setns": 308, "chroot": 161, "keyctl": 250, "add_key": 248},
        **{"userfaultfd": 323, "open_by_handle_at": 304, "memfd_create": 319, "shmget": 29, "shmat": 30, "msgget": 68},
        **{"chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchown": 93, "lchown": 94},
        **{"fchownat": 260, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "utimensat": 280, "utime": 132},
    },
    "aarch64": {
        **{"socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "sendto": 206},
        **{"execve": 221, "execveat": 281, "accept4": 242, "ptrace": 117, "tkill": 130},
        **{"process_vm_readv": 270, "process_vm_writev": 271, "pidfd_open": 434, "pidfd_getfd": 438, "prlimit64": 261},
        **{"rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "pidfd_send_signal": 424, "setpriority": 140},
        **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "bpf": 280, "perf_event_open": 241},
        **{"mount": 40, "umount2": 39, "unshare": 97, "setns": 268, "chroot": 51, "keyctl": 219, "add_key": 217},
        **{
            "userfaultfd": 282,
            "open_by_handle_at": 265,
            "memfd_create": 279,
            "shmget": 194,
            "shmat": 196,
            "msgget": 186,
        },
        **{"fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchownat": 54, "fchown": 55, "utimensat": 88},
        **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7},
    },
}
OWN = {"x86_64": (62, 234, 302), "aarch64": (129, 131, 261)}  # kill, tgkill, prlimit64: on the process itself only
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
CLONE_THREAD = 0x10000
X32 = 0x40000000  # system calls of another kind on x86_64
REFUSED, NOT_THERE, ALLOWED = 0x00050000 | 1, 0x00050000 | 38, 0x7FFF0000  # EPERM; ENOSYS: the C library asks otherwise
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # places in what a filter sees


def enter(python_path: Iterable[str]) -> list[str]:
    """Give up what this process does not need to read files: what the system could not take away, in words."""
    if not sys.platform.startswith("linux"):
        return [f"a process can use the network and all files of its user: VCC has no sandbox for {platform.system()}"]
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    library.syscall.restype = ctypes.c_long
    missing = []
    if library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return [f"a process can use the network and all files of its user: {_reason()}"]
    if not _leave_files(library, python_path):
        missing.append(f"a process can read and write the files of its user: no landlock here ({_reason()})")
    if not _leave_calls(library):
        missing.append(f"a process can use the network: no seccomp here ({_reason()})")
    return missing


def _reason() -> str:
    return os.strerror(ctypes.get_errno()) if ctypes.get_errno() else platform.machine()


def _leave_files(library: ctypes.CDLL, python_path: Iterable[str]) -> bool:
    """Landlock: of all files, only those of Python and the system's libraries can be read, and none can be written."""
    version = library.syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION))
    if version < 1:
        return False
    handled = sum(rights for since, rights in RIGHTS.items() if since <= version)
    rules = struct.pack("=Q", handled)
    ruleset = library.syscall(ctypes.c_long(CREATE_RULESET), rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in readable(python_path):
            _allow_reading(library, ruleset, path)
        return bool(library.syscall(ctypes.c_long(RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


def readable(python_path: Iterable[str]) -> set[str]:
    """Where Python, its packages, this package and the system's libraries are.

    Not all of `python_path`: it may hold the folder that the user works in.
    """
    packages = {path for path in python_path if os.path.basename(path) in ("site-packages", "dist-packages")}
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())
    return {own, *packages, *SYSTEM, *filter(None, installed)}


def _allow_reading(library: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this system
        return
    try:
        rights = EXECUTE | READ_FILE | (READ_DIR if os.path.isdir(path) else 0)
        rule = struct.pack("=Qi", rights, place)
        library.syscall(
            ctypes.c_long(ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0)
        )
    finally:
        os.close(place)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def _leave_calls(library: ctypes.CDLL) -> bool:
    """Seccomp: no sockets, no other programs and processes, no signals to others; threads of its own are allowed."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        ctypes.set_errno(0)
        return False
    code = b"".join(_program(machine))
    filter = Filter(len(code) // 8, code)
    return bool(library.prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.addressof(filter), 0, 0) == 0)


def _program(machine: str) -> list[bytes]:
    """The filter: load a word, compare, jump over the next instructions or not."""

    def load(place: int) -> bytes:
        return struct.pack("=HBBI", 0x20, 0, 0, place)

    def unless_equal(value: int, skip: int) -> bytes:
        return struct.pack("=HBBI", 0x15, 0, skip, value)

    def give(result: int) -> bytes:
        return struct.pack("=HBBI", 0x06, 0, 0, result)

    own = OWN[machine]
    over = struct.pack("=HBBI", 0x05, 0, 0, 1)  # the next instruction
    program = [load(ARCHITECTURE), unless_equal(ARCHITECTURES[machine], 1), over, give(REFUSED), load(NUMBER)]
    if machine == "x86_64":
        program += [struct.pack("=HBBI", 0x35, 0, 1, X32), give(REFUSED)]
    for number in FORBIDDEN[machine].values():
        if number not in own:
            program += [unless_equal(number, 1), give(REFUSED)]
    program += [unless_equal(CLONE3, 1), give(NOT_THERE)]
    has_bits = struct.pack("=HBBI", 0x45, 1, 0, CLONE_THREAD)
    program += [unless_equal(CLONE[machine], 4), load(FIRST_ARGUMENT), has_bits, give(REFUSED), give(ALLOWED)]
    for number in own:  # 0 is the process itself for prlimit64, and its group for kill
        selves = (os.getpid(), 0) if number == own[2] else (os.getpid(),)
        same = [part for pid in selves for part in (unless_equal(pid, 1), give(ALLOWED))]
        program += [unless_equal(number, len(same) + 2), load(FIRST_ARGUMENT), *same, give(REFUSED)]
    return [*program, give(ALLOWED)]
