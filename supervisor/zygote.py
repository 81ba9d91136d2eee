"""The fork server: a process with one thread and no event loop that forks children on request.

Run as `python -P -m roost.supervisor.zygote FD`, where FD is a sequenced-packet socket. Its first message is
`Preload`, answered with a `Forked` of number 0 when all is imported; each further one is a `Fork`, which comes with two
descriptors, the child's control link and its standard error. The socket's end is the zygote's end.

It forks twice: a middle process forks the child, reports its pid and ends, so that root, a subreaper, becomes the
child's parent. Children therefore outlive their zygote, and root alone reaps them. Requests that wait behind each other
share a middle process, which costs more than a child.
"""

from __future__ import annotations

import array
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from roost.schemas import control
from roost.supervisor import birth, kernel
from roost.supervisor.identity import set_title

MAX_PACKET = 64 * 1024
AT_ONCE = 8
ADOPTION_STEP = 0.0002
ADOPTION_TIMEOUT = 10.0

_FD_BYTES = array.array("i").itemsize

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[control.ToZygote] = msgspec.msgpack.Decoder(control.ToZygote)


def main() -> None:
    """Serve fork requests until the socket ends."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(sock.fileno(), False)
    faulthandler.enable()
    kernel.forbid_core_files()
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != kernel.socket_maker(sock):
        return
    os.environ.pop("PYTHONPATH", None)
    set_title("roost: zygote")
    entry = _prepare(sock)
    if entry is not None:
        while _serve_some(sock, entry):
            pass


def _prepare(sock: socket.socket) -> birth.Entry | None:
    data = sock.recv(MAX_PACKET)
    if not data:
        return None
    preload = _decoder.decode(data)
    if not isinstance(preload, control.Preload):
        raise TypeError(f"the first message must be Preload, not {type(preload).__name__}")
    for module in preload.modules:
        importlib.import_module(module)
    entry = birth.find_entry(preload.entry)
    if preload.warm_up:
        module, _, name = preload.warm_up.partition(":")
        getattr(importlib.import_module(module), name)()
    if kernel.thread_count() != 1:
        raise RuntimeError("a preloaded module or the warm-up has left a thread behind")
    gc.collect()
    gc.freeze()
    sock.send(_encoder.encode(control.Forked(number=0, pid=os.getpid())))
    return entry


class _Request:
    """A request to fork, with the descriptors that came with it."""

    def __init__(self, number: int, root_pid: int, control_fd: int, stderr_fd: int) -> None:
        self.number = number
        self.root_pid = root_pid
        self.control_fd = control_fd
        self.stderr_fd = stderr_fd

    def close(self) -> None:
        os.close(self.control_fd)
        os.close(self.stderr_fd)


def _serve_some(sock: socket.socket, entry: birth.Entry) -> bool:
    """Wait for a request and serve it with those that wait behind it; return False at the end of the socket."""
    first = _receive(sock, 0)
    if first is None:
        return False
    requests = [first]
    try:
        with suppress(BlockingIOError):
            while len(requests) < AT_ONCE:
                more = _receive(sock, socket.MSG_DONTWAIT)
                if more is None:
                    break
                requests.append(more)
        answers = _fork_twice(sock, entry, requests)
    finally:
        for request in requests:
            request.close()
    for answer in answers:
        sock.send(_encoder.encode(answer))
    return True


def _receive(sock: socket.socket, flags: int) -> _Request | None:
    # Not socket.recv_fds: until Python 3.12 that ignores its flags.
    room = socket.CMSG_SPACE(2 * _FD_BYTES)
    data, ancillary, _, _ = sock.recvmsg(MAX_PACKET, room, flags)
    if not data:
        return None
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % _FD_BYTES])
    request = _decoder.decode(data)
    if not isinstance(request, control.Fork) or len(fds) != 2:
        raise TypeError("a request must be Fork with two descriptors")
    return _Request(request.number, request.root_pid, *fds)


def _fork_twice(
    sock: socket.socket, entry: birth.Entry, requests: list[_Request]
) -> list[control.Forked]:
    """Have one middle process fork all the children; return what became of each."""
    pids: dict[int, int] = {}
    error = "the fork was killed"
    reading, writing = os.pipe()
    try:
        middle = os.fork()
        if middle == 0:
            os.close(reading)
            _be_middle(sock, entry, requests, writing)
        os.close(writing)
        writing = -1
        with os.fdopen(reading, "rb") as answer:
            reading = -1
            lines = answer.read().decode().splitlines()
        os.waitpid(middle, 0)
    except OSError as failure:
        lines = [str(failure)]
    finally:
        for fd in (reading, writing):
            if fd >= 0:
                os.close(fd)
    for line in lines:
        number, _, pid = line.partition(" ")
        if number.isdigit() and pid.isdigit():
            pids[int(number)] = int(pid)
        else:
            error = line
    return [
        control.Forked(number=number, pid=pid, error="" if pid else error)
        for number in (request.number for request in requests)
        for pid in (pids.get(number, 0),)
    ]


def _be_middle(
    sock: socket.socket, entry: birth.Entry, requests: list[_Request], writing: int
) -> NoReturn:
    me = os.getpid()
    for request in requests:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(writing, f"{error}\n".encode())
            break
        if pid == 0:
            os.close(writing)
            sock.close()
            for other in requests:
                if other is not request:
                    other.close()
            os.setsid()
            _wait_for_adoption(me)
            birth.run_forked(entry, request.control_fd, request.stderr_fd, request.root_pid)
        os.write(writing, f"{request.number} {pid}\n".encode())
    os._exit(0)


def _wait_for_adoption(middle: int) -> None:
    """Wait until the middle process has ended; a death signal set before would come from its end."""
    end = time.monotonic() + ADOPTION_TIMEOUT
    while os.getppid() == middle and time.monotonic() < end:
        time.sleep(ADOPTION_STEP)  # one thread, no event loop


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
