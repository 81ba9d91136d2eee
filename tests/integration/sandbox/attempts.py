"""Attempts to get out of a sandbox: Python code that raises an ordinary error where it is refused.

`argv` of the code are the names that `tests.support.cage` puts before it.
"""

from __future__ import annotations

SYSCALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    if libc.syscall(*a) < 0:
        e = ctypes.get_errno(); raise OSError(e, os.strerror(e))
X86 = os.uname().machine == 'x86_64'
def number(x86, arm): return x86 if X86 else arm
"""

WRITING = {
    "create a file outside": "open(OUTSIDE + '/x', 'w').write('x')",
    "append to a file outside": "open(OUTSIDE + '/note', 'a').write('x')",
    "open a file outside for writing": "os.open(OUTSIDE + '/note', os.O_RDWR)",
    "truncate a file outside": "os.truncate(OUTSIDE + '/note', 0)",
    "empty a file outside by opening it": "os.open(OUTSIDE + '/note', os.O_RDONLY | os.O_TRUNC)",
    "remove a file outside": "os.unlink(OUTSIDE + '/note')",
    "remove a folder outside": "os.rmdir(OUTSIDE + '/empty')",
    "make a folder outside": "os.mkdir(OUTSIDE + '/x')",
    "rename a file outside": "os.rename(OUTSIDE + '/note', OUTSIDE + '/x')",
    "move a file out": "os.rename(WORK + '/file', OUTSIDE + '/x')",
    "link a file out": "os.link(WORK + '/file', OUTSIDE + '/x')",
    "make a link outside": "os.symlink('/', OUTSIDE + '/x')",
    "write by way of dots": "open('../../outside/x', 'w')",
    "write through a symbolic link": """
try: os.symlink(OUTSIDE + '/note', WORK + '/l1')
except FileExistsError: pass
open(WORK + '/l1', 'w').write('x')""",
    "write through a link to a folder": """
try: os.symlink(OUTSIDE, WORK + '/l2')
except FileExistsError: pass
open(WORK + '/l2/x', 'w')""",
    "write through a hard link": """
os.link(OUTSIDE + '/note', WORK + '/hard')
open(WORK + '/hard', 'w').write('x')""",
    "write through /proc/self/root": "open('/proc/self/root' + OUTSIDE + '/x', 'w')",
    "write through a descriptor opened for reading": """
fd = os.open(OUTSIDE + '/note', os.O_RDONLY)
open(f'/proc/self/fd/{fd}', 'w').write('x')""",
    "change a mode outside": "os.chmod(OUTSIDE + '/note', 0o777)",
    "change a mode outside through a descriptor": """
os.fchmod(os.open(OUTSIDE + '/note', os.O_RDONLY), 0o777)""",
    "change an owner outside": "os.chown(OUTSIDE + '/note', os.getuid(), os.getgid())",
    "change a time outside": "os.utime(OUTSIDE + '/note', (1, 1))",
    "set an attribute outside": "os.setxattr(OUTSIDE + '/note', 'user.x', b'x')",
    "write into the user's home": "open(USER + '/.bashrc', 'w')",
    "write into a system folder": "open('/etc/roost-x', 'w')",
    "write into the daemon's home": "open(HOME + '/x', 'w')",
    "write into another agent's folder": "open(HOME + '/workspaces/other/x', 'w')",
    "rename the daemon's home": "os.rename(HOME, HOME + '2')",
    "set a kernel parameter": "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "use the magic key": "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
    "write into /sys": "os.open('/sys/kernel/uevent_helper', os.O_WRONLY); os.mkdir('/sys/fs/cgroup/x')",
    "make a device": "os.mknod(WORK + '/device', 0o60600, os.makedev(254, 0))",
    "make a setuid file": """
fd = os.open(WORK + '/s', os.O_CREAT | os.O_WRONLY, 0o755)
os.fchmod(fd, 0o4755)""",
    "create a setuid file": "os.open(WORK + '/t', os.O_CREAT | os.O_WRONLY, 0o4755)",
}

SEEING = {
    "read the cookie": "print(open(HOME + '/daemon.cookie').read())",
    "list the daemon's home": "print(os.listdir(HOME)); assert not os.listdir(HOME); open(HOME + '/store.db')",
    "read the cookie by way of dots": "print(open('../../home/daemon.cookie').read())",
    "read the cookie through a link": """
try: os.symlink(HOME + '/daemon.cookie', WORK + '/l3')
except FileExistsError: pass
print(open(WORK + '/l3').read())""",
    "read the cookie through a hard link": """
os.link(HOME + '/daemon.cookie', WORK + '/l4')
print(open(WORK + '/l4').read())""",
    "read the cookie through /proc/self/root": """
print(open('/proc/self/root' + HOME + '/daemon.cookie').read())""",
    "read the cookie through another process's root": """
print(open(f'/proc/{TESTER}/root' + HOME + '/daemon.cookie').read())""",
    "read the cookie by a handle": SYSCALL
    + """
handle = struct.pack('Ii', 128, 0) + bytes(128)
buffer, mount = ctypes.create_string_buffer(handle), ctypes.c_int()
call(number(303, 264), -100, (HOME + '/daemon.cookie').encode(), buffer, ctypes.byref(mount), 0)
call(number(304, 265), os.open('/', os.O_RDONLY), buffer, 0)""",
    "read the store": "print(open(HOME + '/store.db').read())",
    "read another agent's folder": "print(open(HOME + '/workspaces/other/note').read())",
    "read the user's keys": "print(open(USER + '/.ssh/id_ed25519').read())",
    "read another process's environment": "print(open(f'/proc/{VICTIM}/environ').read())",
    "read another process's memory": "os.open(f'/proc/{VICTIM}/mem', os.O_RDONLY)",
    "read another process's descriptors": "print(os.readlink(f'/proc/{TESTER}/fd/0'))",
    "read a disk": """
import glob
names = glob.glob('/sys/class/block/*')
fds = []
for name in names:
    try: fds.append(os.open('/dev/' + name.rsplit('/', 1)[1], os.O_RDONLY))
    except FileNotFoundError: pass
if not fds: raise FileNotFoundError(2, 'no disk to be seen')""",
}

REACHING = {
    "connect to the daemon's socket": """
s = socket.socket(socket.AF_UNIX); s.connect(HOME + '/daemon.sock')""",
    "connect to an abstract socket": """
s = socket.socket(socket.AF_UNIX); s.connect(ABSTRACT)""",
    "send from one of a pair": """
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.sendto(b'x', HOME + '/daemon.sock')""",
    "connect out": "socket.create_connection(('127.0.0.1', PORT), 5)",
    "connect out to the internet": "socket.create_connection(('192.0.2.1', 80), 0.5)",
    "send a datagram out": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', UDP_PORT))
raise OSError(101, 'sent, to nobody')""",
    "open a packet socket": "socket.socket(17, socket.SOCK_RAW, 768)",
    "open a virtual machine socket": "socket.socket(40, socket.SOCK_STREAM)",
    "make sockets by way of a ring": SYSCALL + "call(425, 8, ctypes.create_string_buffer(128))",
    "ptrace": SYSCALL + "call(number(101, 117), 16, VICTIM, 0, 0)",
    "read memory of another process": SYSCALL
    + """
b = ctypes.create_string_buffer(8)
class V(ctypes.Structure): _fields_ = [('p', ctypes.c_void_p), ('n', ctypes.c_size_t)]
v = V(ctypes.addressof(b), 8)
call(number(310, 270), VICTIM, ctypes.byref(v), 1, ctypes.byref(v), 1, 0)""",
    "take a descriptor of another process": SYSCALL
    + """
fd = os.pidfd_open(VICTIM)
call(438, fd, 0, 0)""",
    "signal another process": "os.kill(VICTIM, signal.SIGTERM)",
    "signal the daemon": "os.kill(TESTER, 0)",
    "limit another process": "resource.prlimit(VICTIM, resource.RLIMIT_CPU, (0, 0))",
    "raise an own limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 19, 1 << 19))",
    "save oneself from the end of memory": "open('/proc/self/oom_score_adj', 'w').write('-1000')",
    "become somebody else": "os.setuid(12345 if os.getuid() != 12345 else 12346)",
    "use capabilities": SYSCALL + "call(number(170, 161), b'x', 1)",
    "make a user namespace": SYSCALL + "call(number(272, 97), 0x10000000)",
    "make a mount namespace": SYSCALL + "call(number(272, 97), 0x20000)",
    "make a namespace with a process": SYSCALL
    + """
call(number(56, 220), 0x10000000 | 17, 0, 0, 0, 0)""",
    "make a namespace with the new call": SYSCALL
    + """
b = ctypes.create_string_buffer(struct.pack('Q', 0x10000000) + bytes(80), 88)
call(435, b, 88)""",
    "enter a namespace": SYSCALL + "call(number(308, 268), os.open('/proc/1/ns/net', 0), 0)",
    "mount": SYSCALL + "call(number(165, 40), b'none', b'/mnt', b'tmpfs', 0, 0)",
    "uncover what is covered": SYSCALL + "call(number(166, 39), HOME.encode(), 2)",
    "copy a mount": SYSCALL + "call(428, -100, b'/', 1)",
    "change the root": "os.chroot('/')",
    "open the user's terminal": "os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)",
    "type into a terminal": """
import pty
master, slave = os.openpty()
fcntl.ioctl(slave, 0x5412, b'x')""",
    "load a kernel program": SYSCALL
    + "call(number(321, 280), 0, ctypes.create_string_buffer(128), 128)",
    "watch the kernel": SYSCALL
    + "call(number(298, 241), ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "reach keys": SYSCALL + "call(number(250, 219), 0, -3, 0)",
    "use a call of another architecture": SYSCALL + "call(0x40000000 | 39)",
    "take over shared memory": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0x526f6f73, 4096, 0o600) < 0: raise OSError(ctypes.get_errno(), 'refused')""",
}

PROTECTED = {
    "write a hook": "open(WORK + '/.git/hooks/pre-commit', 'w').write('x')",
    "change the repository's settings": "open(WORK + '/.git/config', 'a').write('x')",
    "move the repository away": "os.rename(WORK + '/.git', WORK + '/sub/git')",
}
