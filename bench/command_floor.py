"""The floor of a command's output: one process that reads a pipe, encodes, and writes the daemon's frames to a socket.

Nothing else is done: no checks, no limits, no other client, and each write waits until the socket has taken all of it.
Usage: command_floor.py SOCKET PROGRAM [ARGUMENT ...]; one client at a time is served, each with a run of the program.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys

READ_BYTES = 64 * 1024
HEAD = (
    b'{"jsonrpc":"2.0","method":"commandExec.outputDelta","params":{"processId":"p",'
    b'"stream":"stdout","deltaBase64":"'
)
TAIL = b'","capReached":false}}\n'


def serve(connection: socket.socket, argv: list[str]) -> None:
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pipe = program.stdout.fileno()
        while data := os.read(pipe, READ_BYTES):
            connection.sendall(b"".join((HEAD, base64.b64encode(data), TAIL)))
    connection.sendall(b'{"jsonrpc":"2.0","id":"start","result":{"exitCode":0}}\n')


def main() -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        with connection:
            serve(connection, sys.argv[2:])


if __name__ == "__main__":
    main()
