"""Sandbox of a child that parses untrusted bytes: read given folders, compute, answer on its pipe.

Landlock (Linux 5.13) limits files and TCP. A seccomp filter refuses sockets, new programs, new
processes, memory that no limit counts, and changes of a file's owner, mode or times. Neither needs
privileges, neither can be undone, and threads that start later inherit both. A kernel without one
of them still enforces the other.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

_NO_NEW_PRIVS = 38
_SPARE_SPECULATION = 4
_ALL_THREADS = 1
# Landlock's calls, the same numbers on every architecture
_CREATE = 444
_ADD = 445
_RESTRICT = 446
_PATH_BENEATH = 1
_EXECUTE = 1
_WRITE_FILE = 2
_READ_FILE = 4
_READ_DIR = 8
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15  # truncate, ioctl on devices
# Landlock's version: its rights over files
_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET = 3  # bind and connect
_SCOPED = 3  # abstract sockets and signals to other processes
_READ = _READ_FILE | _READ_DIR
# creating devices, sockets, pipes, and links, which other programs follow
_MAKE_ODD = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
# each pair of sockets holds 400 kB of the kernel's memory
_OPEN_FILES = 1024
_OPEN_READERS = 256
_CAPABILITIES = 0x20080522  # version 3 of capget and capset
_READS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

# What Python, NumPy, Arrow and the C library read besides the folders of modules.
_SYSTEM = (
    *(
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/share/zoneinfo",
        "/etc/localtime",
    ),
    *(
        "/etc/ld.so.cache",
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/sys/vm",
    ),
    *(
        "/sys/devices/system",
        "/sys/fs/cgroup",
        "/dev/null",
        "/dev/zero",
        "/dev/urandom",
        "/dev/random",
    ),
    *("/nix/store", "/gnu/store"),
)


@dataclass(frozen=True)
class Sandbox:
    """The files that a child may reach.

    Args:
        read: folders and files that it may read, besides those of Python.
        write: folders in which it may create, change and remove files.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def encoded(self) -> str:
        """Return the sandbox as a command-line argument."""
        return json.dumps([list(self.read), list(self.write)])

    @staticmethod
    def decoded(text: str) -> Sandbox:
        """Return the sandbox that `encoded` wrote."""
        read, write = json.loads(text)
        return Sandbox(tuple(read), tuple(write))


# "off" turns the sandbox off for this process and those that it starts
_SETTING = "DATACHECK_SANDBOX"


def disable() -> None:
    """Start later children without a sandbox (``--no-sandbox``)."""
    os.environ[_SETTING] = "off"


def wanted() -> bool:
    """Return whether children get a sandbox if the kernel has one."""
    return os.environ.get(_SETTING, "") != "off"


def sandbox_parts() -> str:
    """Return which parts of the sandbox this machine supports, for display."""
    if not wanted():
        return "off (--no-sandbox)"
    version = _landlock_version()
    parts = [f"landlock {version}"] if version else []
    parts += ["seccomp"] if _has_seccomp() else []
    return ", ".join(parts) or "none: this kernel has neither landlock nor seccomp"


def enter(sandbox: Sandbox) -> None:
    """Put this process, which must have one thread, into a sandbox permanently.

    Raises:
        OSError: the kernel has a part of the sandbox and refuses to use it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lower_limit(resource.RLIMIT_NOFILE, _OPEN_FILES if sandbox.write else _OPEN_READERS)
    libc = _libc()
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        _fail()
    if version := _landlock_version():
        _restrict_files(libc, version, sandbox)
    _drop_capabilities(libc)
    if _has_seccomp():
        _filter_calls(libc, writes=bool(sandbox.write))


def lower_limit(kind: int, limit: int) -> None:
    """Lower a resource limit of this process permanently; a lower existing limit stays."""
    soft, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (min(limit, soft) if soft != resource.RLIM_INFINITY else limit, limit))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop all privileges of root except reading files of other users."""
    if os.geteuid():
        return
    header = struct.pack("Ii", _CAPABILITIES, 0)
    capabilities = ctypes.create_string_buffer(24)
    if libc.capget(header, capabilities):
        _fail()
    effective, permitted, *_ = struct.unpack("6I", capabilities.raw)
    if libc.capset(header, struct.pack("6I", effective & _READS, permitted & _READS, 0, 0, 0, 0)):
        _fail()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _fail() -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


# ----------------------------------------------------------------------------------------- Landlock


@cache
def _landlock_version() -> int:
    """Return the version of Landlock's interface; 0 if it is missing or not allowed."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE, None, 0, 1)))


def _restrict_files(libc: ctypes.CDLL, version: int, sandbox: Sandbox) -> None:
    rights = _BY_VERSION[max(known for known in _BY_VERSION if known <= version)]
    fields = [rights, _NET if version >= 4 else 0, _SCOPED if version >= 6 else 0]
    # older kernels accept only the shorter structure
    known = fields[: 1 + (version >= 4) + (version >= 6)]
    attributes = struct.pack(f"{len(known)}Q", *known)
    rules = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        _fail()
    try:
        for path in dict.fromkeys([*_python_folders(), *_SYSTEM, *sandbox.read]):
            _allow(libc, rules, path, rights & (_READ | _EXECUTE))
        _allow(libc, rules, "/dev/null", rights & (_READ_FILE | _WRITE_FILE))
        for path in sandbox.write:
            _allow(libc, rules, path, rights & ~(_EXECUTE | _MAKE_ODD))
        if libc.syscall(_RESTRICT, rules, 0):
            _fail()
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    """Allow rights below a path; a missing path allows nothing."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{place}"):  # noqa: PTH112
            rights &= _FILE_RIGHTS
        if libc.syscall(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0):
            _fail()
    finally:
        os.close(place)


def _python_folders() -> Iterable[str]:
    """Yield the folders of Python modules and their shared libraries."""
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield from (os.path.realpath(path) for path in sysconfig.get_paths().values())
    yield from (path for path in sys.path if path)
    yield os.path.dirname(os.path.realpath(sys.executable))  # noqa: PTH120
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))


# ------------------------------------------------------------------------------------------ seccomp

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_CLONE_THREAD = 0x10000
_X32 = 0x40000000  # the x32 ABI: a second set of numbers for the same calls

# name: (x86_64, aarch64); None where the architecture lacks the call.
_REFUSED_CALLS: dict[str, tuple[int | None, int]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "fork": (57, -1),
    "vfork": (58, -1),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setpgid": (109, 154),
    "setsid": (112, 157),  # the parent kills a child by its process group
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),  # memory that no limit counts
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "vhangup": (153, 58),
    "quotactl_fd": (443, 443),
    # Landlock does not check these: they reach any file of this user, outside its folders, too.
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "truncate": (76, 45),  # Landlock checks it from version 3 on
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "seccomp": (317, 277),  # kernel memory
    "setsockopt": (54, 208),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),  # large buffers, and files in flight
    "sync": (162, 81),
    "syncfs": (306, 267),  # the whole machine waits for its disk
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # limited in number for the whole machine
    "io_setup": (206, 0),
    "io_destroy": (207, 1),
    "io_getevents": (208, 4),
    "io_submit": (209, 2),
    "io_cancel": (210, 3),
    "io_pgetevents": (333, 292),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
}
# Calls whose first argument names a process: only 0, this process, is allowed.
_OWN_PROCESS_CALLS: dict[str, tuple[int, int]] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}
_NEWEST = 450  # the newest call that was reviewed; calls of later kernels fail as unknown
# The numbers that all architectures share begin here. Later kernels give old tables new calls, which
# stand between the last reviewed one (rseq; kexec_file_load) and these.
_SHARED_FIRST = 424
_OLD_LAST = (334, 294)
# Commands refused by an argument of the call. fcntl: signals to any process when a file is ready,
# large pipes, leases, locks on parts of a file, hints for its device. prctl: outliving the parent.
_COMMANDS = (
    ((72, 25), 1, (6, 7, 8, 10, 15, 37, 38, 1024, 1026, 1031, 1036, 1038)),  # fcntl
    ((157, 167), 0, (1, 22)),  # prctl: PR_SET_PDEATHSIG, PR_SET_SECCOMP
)
# Before this version of Landlock, a process that may read a file may truncate it with O_TRUNC.
_TRUNCATE_VERSION = 3
# for each architecture: (number, index of the flags argument) of open and openat
_OPENAT2 = 437
_OPENS = (((2, 1), (257, 2)), ((56, 2),))
# ioctl on an open file: whether it is a terminal, its size, the bytes available; blocking mode,
# inheritance. Other commands change the flags of files that are open for reading.
_IOCTL = (16, 29)
_ALLOWED_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
# From a datagram socket, sendto reaches any socket that the user may write to, such as syslog's.
_SENDTO = (44, 206)
_SIGNAL = (62, 129), (234, 131)  # kill, tgkill
_SECCOMP = (317, 277)
# column in the tables above; AUDIT_ARCH of the kernel
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@cache
def _has_seccomp() -> bool:
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES or sys.maxsize < 2**32:
        return False
    column, _ = _ARCHITECTURES[platform.machine()]
    action = struct.pack("I", _REFUSE)
    # SECCOMP_GET_ACTION_AVAIL: whether the kernel knows this action
    return bool(_libc().syscall(_SECCOMP[column], 2, 0, action) == 0)


def _filter_calls(libc: ctypes.CDLL, *, writes: bool) -> None:
    column, architecture = _ARCHITECTURES[platform.machine()]
    program = b"".join(_filter_program(column, architecture, writes=writes))
    code = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    # kernels before 4.17 know only the latter
    for flags in (_ALL_THREADS | _SPARE_SPECULATION, _ALL_THREADS):
        if not libc.syscall(_SECCOMP[column], 1, flags, pointer):
            return
    _fail()


def _refuse_truncation(column: int) -> Iterable[bytes]:
    """Yield instructions that refuse O_TRUNC on a Landlock that does not check it."""
    if not 0 < _landlock_version() < _TRUNCATE_VERSION:
        return
    # its flags lie in memory, which a filter cannot read; `runtime.beneath` works without it
    yield _instruction(_EQUAL, _OPENAT2, 0, 1)
    yield _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    for number, argument in _OPENS[column]:
        yield _instruction(_EQUAL, number, 0, 4)
        yield _instruction(_LOAD, 16 + 8 * argument)
        yield _instruction(_ANY_BIT, os.O_TRUNC, 0, 1)
        yield _instruction(_RETURN, _REFUSE | errno.EPERM)
        yield _instruction(_RETURN, _ALLOW)


def _filter_program(column: int, architecture: int, *, writes: bool) -> Iterable[bytes]:
    """Yield a filter of system calls; refused calls fail with EPERM.

    Notes:
        ``clone3`` hides its flags in memory, so it fails as unknown and the C library falls back to
        ``clone``, which may start threads but not processes. A signal may go to this process only,
        and only its own limits and affinity may change.
    """
    calls = [call[column] for call in _REFUSED_CALLS.values()]
    numbers = sorted(call for call in calls if call is not None and call >= 0)
    refusal = _REFUSE | errno.EPERM
    yield _instruction(_LOAD, 4)
    yield _instruction(_EQUAL, architecture, 1, 0)
    yield _instruction(_RETURN, refusal)
    yield _instruction(_LOAD, 0)
    if column == 0:
        yield _instruction(_AT_LEAST, _X32, 0, 1)
        yield _instruction(_RETURN, refusal)
    yield _instruction(_AT_LEAST, _NEWEST + 1, 0, 1)
    yield _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    yield _instruction(_AT_LEAST, _SHARED_FIRST, 2, 0)
    yield _instruction(_AT_LEAST, _OLD_LAST[column] + 1, 0, 1)
    yield _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    yield _instruction(_EQUAL, _CLONE3[column], 0, 1)
    yield _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    yield _instruction(_EQUAL, _CLONE[column], 0, 4)
    yield _instruction(_LOAD, 16)  # the lower half of the first argument
    yield _instruction(_ANY_BIT, _CLONE_THREAD, 1, 0)
    yield _instruction(_RETURN, refusal)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_EQUAL, _SENDTO[column], 0, 6)
    # The two halves of the fifth argument, an address. `send` passes a null pointer: allowed.
    yield _instruction(_LOAD, 48)
    yield _instruction(_EQUAL, 0, 0, 2)
    yield _instruction(_LOAD, 52)
    yield _instruction(_EQUAL, 0, 1, 0)
    yield _instruction(_RETURN, refusal)
    yield _instruction(_RETURN, _ALLOW)
    for call, process in [
        *((call, os.getpid()) for call in _SIGNAL),
        *((call, 0) for call in _OWN_PROCESS_CALLS.values()),
    ]:
        yield _instruction(_EQUAL, call[column], 0, 4)
        yield _instruction(_LOAD, 16)
        yield _instruction(_EQUAL, process, 1, 0)
        yield _instruction(_RETURN, refusal)
        yield _instruction(_RETURN, _ALLOW)
    for call, argument, commands in _COMMANDS:
        yield _instruction(_EQUAL, call[column], 0, 2 + 2 * len(commands))
        yield _instruction(_LOAD, 16 + 8 * argument)  # its lower half
        for command in commands:
            yield _instruction(_EQUAL, command, 0, 1)
            yield _instruction(_RETURN, refusal)
        yield _instruction(_RETURN, _ALLOW)
    if not writes:  # a child that writes must be able to truncate its files
        yield from _refuse_truncation(column)
    yield _instruction(_EQUAL, _IOCTL[column], 0, 2 + 2 * len(_ALLOWED_IOCTLS))
    yield _instruction(_LOAD, 24)
    for command in _ALLOWED_IOCTLS:
        yield _instruction(_EQUAL, command, 0, 1)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _REFUSE | errno.ENOTTY)
    for number in numbers:
        yield _instruction(_EQUAL, number, 0, 1)
        yield _instruction(_RETURN, refusal)
    yield _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
