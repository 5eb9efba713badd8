"""The filter of system calls on both machines that have one. Its program is run here, on the kernel's own numbers."""

import os
import re
import struct
from pathlib import Path

import pytest

from vcc.documents import sandbox

# Written down from the kernel's headers (asm/unistd_64.h of x86, asm-generic/unistd.h, which is that of aarch64; 6.1,
# and 6.13 for the four that are newer). A dash: the machine has no such call.
FORBIDDEN = """
socket 41 198 / connect 42 203 / accept 43 202 / sendto 44 206 / bind 49 200 / listen 50 201 / socketpair 53 199
accept4 288 242 / fork 57 - / vfork 58 - / execve 59 221 / execveat 322 281 / ptrace 101 117 / tkill 200 130
process_vm_readv 310 270 / process_vm_writev 311 271 / pidfd_open 434 434 / pidfd_getfd 438 438
rt_sigqueueinfo 129 138 / rt_tgsigqueueinfo 297 240 / pidfd_send_signal 424 424 / setpriority 141 140
io_uring_setup 425 425 / io_uring_enter 426 426 / io_uring_register 427 427 / bpf 321 280 / perf_event_open 298 241
mount 165 40 / umount2 166 39 / unshare 272 97 / setns 308 268 / chroot 161 51 / keyctl 250 219 / add_key 248 217
request_key 249 218 / userfaultfd 323 282 / open_by_handle_at 304 265 / memfd_create 319 279 / shmget 29 194
shmat 30 196 / msgget 68 186 / semget 64 190 / mq_open 240 180 / chmod 90 - / fchmod 91 52 / fchmodat 268 53
fchmodat2 452 452 / chown 92 - / fchown 93 55 / lchown 94 - / fchownat 260 54 / setxattr 188 5 / lsetxattr 189 6
fsetxattr 190 7 / setxattrat 463 463 / removexattr 197 14 / lremovexattr 198 15 / fremovexattr 199 16
removexattrat 466 466 / utimensat 280 88 / utime 132 - / utimes 235 - / futimesat 261 - / init_module 175 105
finit_module 313 273 / delete_module 176 106 / kexec_load 246 104 / kexec_file_load 320 294 / reboot 169 142
swapon 167 224 / swapoff 168 225 / settimeofday 164 170 / clock_settime 227 112 / clock_adjtime 305 266
adjtimex 159 171 / sethostname 170 161 / setdomainname 171 162 / pivot_root 155 41 / fsopen 430 430
fsconfig 431 431 / fsmount 432 432 / fspick 433 433 / move_mount 429 429 / open_tree 428 428 / mount_setattr 442 442
quotactl 179 60 / syslog 103 116 / acct 163 89 / iopl 172 - / ioperm 173 - / sched_setscheduler 144 119
sched_setparam 142 118 / sched_setattr 314 274 / ioprio_set 251 30 / migrate_pages 256 238 / move_pages 279 239
process_madvise 440 440
"""
# What Python, its allocator and the format readers need; lines as above.
NEEDED = """
read 0 63 / write 1 64 / close 3 57 / openat 257 56 / mmap 9 222 / munmap 11 215 / mprotect 10 226 / brk 12 214
futex 202 98 / exit 60 93 / exit_group 231 94 / getdents64 217 61 / newfstatat 262 79 / lseek 8 62 / getrandom 318 278
rt_sigaction 13 134 / rt_sigprocmask 14 135 / rt_sigreturn 15 139 / setitimer 38 103 / madvise 28 233 / getpid 39 172
gettid 186 178 / clock_gettime 228 113 / sched_yield 24 124 / dup 32 23 / pipe2 293 59 / recvfrom 45 207
"""
MACHINES = ("x86_64", "aarch64")
AUDIT = {"x86_64": 62, "aarch64": 183}  # the number of the machine in ELF; then 64 bits, little endian
LITTLE_64 = 0x80000000 | 0x40000000
OTHERS = {"i386": 0x40000003, "arm": 0x40000028, "riscv64": 0xC00000F3}
THREAD = 0x3D0F00  # the flags of a thread in the C library
NEW_PROCESS, NEW_USER = 0x01200011, 0x10000000
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def table(text: str, machine: str) -> dict[str, int]:
    rows = (row.split() for row in re.split("[/\n]", text) if row.strip())
    column = 1 + MACHINES.index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def verdict(machine: str, number: int, argument: int = 0, architecture: int | None = None) -> int:
    """Run the filter as the kernel does: classic BPF over the number, the architecture and the arguments of a call."""
    given = LITTLE_64 | AUDIT[machine] if architecture is None else architecture
    seen = struct.pack("<IIQQ", number, given, 0, argument)
    program = [struct.unpack("=HBBI", line) for line in sandbox._program(machine)]
    value, at = 0, 0
    while True:
        code, then, otherwise, k = program[at]
        at += 1
        if code == 0x20:  # load a word
            (value,) = struct.unpack_from("<I", seen, k)
        elif code == 0x06:  # return
            return int(k)
        elif code == 0x05:  # jump
            at += k
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            at += then if holds else otherwise


@pytest.mark.parametrize("machine", MACHINES)
def test_every_forbidden_call_is_refused_by_its_number(machine: str) -> None:
    refused = {name for name, number in table(FORBIDDEN, machine).items() if verdict(machine, number) == EPERM}
    assert refused == table(FORBIDDEN, machine).keys()


@pytest.mark.parametrize("machine", MACHINES)
def test_no_other_call_is_refused(machine: str) -> None:
    refused = {number for number in range(512) if verdict(machine, number, os.getpid()) == EPERM}
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert refused - {clone} == set(table(FORBIDDEN, machine).values())
    assert {verdict(machine, number) for number in table(NEEDED, machine).values()} == {ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_it_has_threads_but_no_new_processes_or_users(machine: str) -> None:
    clone, clone3 = {"x86_64": (56, 435), "aarch64": (220, 435)}[machine]
    assert verdict(machine, clone, THREAD) == ALLOW
    assert verdict(machine, clone, NEW_PROCESS) == verdict(machine, clone, NEW_USER) == EPERM
    assert verdict(machine, clone3, THREAD) == ENOSYS  # the C library then uses clone


@pytest.mark.parametrize("machine", MACHINES)
def test_signals_and_limits_are_for_the_process_itself(machine: str) -> None:
    kill, tgkill, prlimit = {"x86_64": (62, 234, 302), "aarch64": (129, 131, 261)}[machine]
    own, others = os.getpid(), (os.getppid(), 1, 2**32 - 1)
    assert [verdict(machine, number, own) for number in (kill, tgkill, prlimit)] == [ALLOW] * 3
    assert [verdict(machine, number, 0) for number in (kill, prlimit)] == [EPERM, ALLOW]  # 0: its group; itself
    assert {verdict(machine, number, other) for number in (kill, tgkill, prlimit) for other in others} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_are_refused(machine: str) -> None:
    others = {name: LITTLE_64 | number for name, number in AUDIT.items() if name != machine} | OTHERS
    read = table(NEEDED, machine)["read"]
    assert {verdict(machine, read, 0, number) for number in others.values()} == {EPERM}
    if machine == "x86_64":  # x32: the same architecture, other numbers
        assert verdict(machine, 0x40000000 | read) == EPERM


HEADERS = {  # where Debian's linux-libc-dev puts them
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_headers_where_there_are_some(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not here")
    defined = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.MULTILINE)
    real = {name: int(number) for name, number in defined}
    ours = table(FORBIDDEN, machine) | table(NEEDED, machine)
    known = ours.keys() & real.keys()
    assert len(known) > 80
    assert {name: ours[name] for name in known} == {name: real[name] for name in known}
