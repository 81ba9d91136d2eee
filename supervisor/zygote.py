"""The fork server: a process with one thread and no event loop that forks children on request.

Run as `python -P -m roost.supervisor.zygote FD`, where FD is a sequenced-packet socket. Its first message is
`Preload`, answered with a `Forked` of number 0 when all is imported; each further one is a `Fork`, which comes with two
descriptors, the child's control link and its standard error. The socket's end is the zygote's end.

It forks twice: the middle process reports the child's pid and ends, so that root, a subreaper, becomes the child's
parent. Children therefore outlive their zygote, and root alone reaps them.
"""

from __future__ import annotations

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
ADOPTION_STEP = 0.0002
ADOPTION_TIMEOUT = 10.0

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
        while _serve_one(sock, entry):
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


def _serve_one(sock: socket.socket, entry: birth.Entry) -> bool:
    data, fds, _, _ = socket.recv_fds(sock, MAX_PACKET, 2)
    if not data:
        return False
    try:
        request = _decoder.decode(data)
        if not isinstance(request, control.Fork) or len(fds) != 2:
            raise TypeError("a request must be Fork with two descriptors")
        forked = _fork_twice(sock, entry, request, fds[0], fds[1])
    finally:
        for fd in fds:
            os.close(fd)
    sock.send(_encoder.encode(forked))
    return True


def _fork_twice(
    sock: socket.socket, entry: birth.Entry, request: control.Fork, control_fd: int, stderr_fd: int
) -> control.Forked:
    reading, writing = os.pipe()
    try:
        middle = os.fork()
        if middle == 0:
            os.close(reading)
            _be_middle(sock, entry, request, control_fd, stderr_fd, writing)
        os.close(writing)
        writing = -1
        with os.fdopen(reading, "rb") as answer:
            reading = -1
            text = answer.read().decode()
        os.waitpid(middle, 0)
    except OSError as error:
        return control.Forked(number=request.number, pid=0, error=str(error))
    finally:
        for fd in (reading, writing):
            if fd >= 0:
                os.close(fd)
    if not text.isdigit():
        return control.Forked(number=request.number, pid=0, error=text or "the fork was killed")
    return control.Forked(number=request.number, pid=int(text))


def _be_middle(
    sock: socket.socket,
    entry: birth.Entry,
    request: control.Fork,
    control_fd: int,
    stderr_fd: int,
    writing: int,
) -> NoReturn:
    me = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.write(writing, str(error).encode())
        os._exit(1)
    if pid == 0:
        os.close(writing)
        sock.close()
        os.setsid()
        _wait_for_adoption(me)
        birth.run_forked(entry, control_fd, stderr_fd, request.root_pid)
    os.write(writing, str(pid).encode())
    os._exit(0)


def _wait_for_adoption(middle: int) -> None:
    """Wait until the middle process has ended; a death signal set before would come from its end."""
    end = time.monotonic() + ADOPTION_TIMEOUT
    while os.getppid() == middle and time.monotonic() < end:
        time.sleep(ADOPTION_STEP)  # noqa: TID251 - one thread, no event loop


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
