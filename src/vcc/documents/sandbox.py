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

# System calls by their numbers on each machine; None: not there. aarch64 has the numbers of the kernel's generic table.
MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
Numbers = dict[str, tuple[int | None, int | None]]
NETWORK: Numbers = {
    **{"socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)},
    **{"accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
}
PROCESSES: Numbers = {
    **{"fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117)},
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440)},
    **{"pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130)},
    **{"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140)},
    **{"sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274)},
    **{"ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239), "userfaultfd": (323, 282)},
    **{"shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180)},
}
FILES: Numbers = {  # what landlock leaves
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466)},
    **{"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
    **{"open_by_handle_at": (304, 265), "memfd_create": (319, 279)},
}
ADMINISTRATION: Numbers = {  # for a service that runs as root
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97)},
    **{"setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442)},
    **{"fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "acct": (163, 89)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "syslog": (103, 116)},
    **{"settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171)},
    **{"sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None)},
    **{"keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241)},
}
FORBIDDEN: Numbers = {**NETWORK, **PROCESSES, **FILES, **ADMINISTRATION}
SIGNALS: Numbers = {"kill": (62, 129), "tgkill": (234, 131)}  # to the process itself only
LIMITS: Numbers = {"prlimit64": (302, 261)}  # likewise; 0 stands for the process itself
CLONE: Numbers = {"clone": (56, 220)}  # threads only
CLONE3: Numbers = {"clone3": (435, 435)}  # its flags are in memory, where a filter cannot look
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

    over = struct.pack("=HBBI", 0x05, 0, 0, 1)  # the next instruction
    program = [load(ARCHITECTURE), unless_equal(ARCHITECTURES[machine], 1), over, give(REFUSED), load(NUMBER)]
    if machine == "x86_64":
        program += [struct.pack("=HBBI", 0x35, 0, 1, X32), give(REFUSED)]
    for number in _numbers(FORBIDDEN, machine):
        program += [unless_equal(number, 1), give(REFUSED)]
    for number in _numbers(CLONE3, machine):
        program += [unless_equal(number, 1), give(NOT_THERE)]
    has_bits = struct.pack("=HBBI", 0x45, 1, 0, CLONE_THREAD)
    for number in _numbers(CLONE, machine):
        program += [unless_equal(number, 4), load(FIRST_ARGUMENT), has_bits, give(REFUSED), give(ALLOWED)]
    for calls, selves in ((SIGNALS, (os.getpid(),)), (LIMITS, (os.getpid(), 0))):
        same = [part for pid in selves for part in (unless_equal(pid, 1), give(ALLOWED))]
        for number in _numbers(calls, machine):
            program += [unless_equal(number, len(same) + 2), load(FIRST_ARGUMENT), *same, give(REFUSED)]
    return [*program, give(ALLOWED)]


def _numbers(calls: Numbers, machine: str) -> list[int]:
    """The numbers of some system calls on a machine, without those that it does not have."""
    numbers = (on[MACHINES.index(machine)] for on in calls.values())
    return [number for number in numbers if number is not None]
