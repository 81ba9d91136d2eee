"""What a command in a sandbox may take: processes, memory, files; and that what it is for works."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from roost.actors.sandbox.launch import LaunchError, SandboxUnavailable, launch
from roost.actors.sandbox.policy import FULL_ACCESS, Policy
from roost.schemas.boot import Backend
from tests.support.cage import READ_ONLY, SECRET, WORKSPACE, Cage, backend_of

MIB = 1024 * 1024
TASKS = 64
GROUPS = Path("/sys/fs/cgroup/pids")
FORK_BOMB = """
children = []
try:
    while len(children) < 400:
        pid = os.fork()
        if not pid:
            signal.pause()
            os._exit(0)
        children.append(pid)
    print('unbounded')
except OSError as error:
    print('bounded', error)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.fixture(params=[READ_ONLY, WORKSPACE], ids=lambda policy: policy.type)
def policy(request: pytest.FixtureRequest) -> Policy:
    found: Policy = request.param
    return found


@pytest.fixture
def bounded_tasks() -> None:
    if os.getuid() == 0 and not os.access(GROUPS, os.W_OK):
        pytest.skip("root has no limit of processes without a control group")


@pytest.mark.usefixtures("bounded_tasks")
def test_a_fork_bomb_is_bounded(cage: Cage, backend: Backend, policy: Policy) -> None:
    ended = cage.attempt(policy, backend, FORK_BOMB, rules=cage.rules(tasks=TASKS))
    assert ended.said.startswith("bounded"), ended.said


@pytest.mark.usefixtures("bounded_tasks")
def test_a_fork_bomb_takes_nothing_from_another_command(cage: Cage, backend: Backend) -> None:
    if os.getuid() and backend.name == "landlock":
        pytest.skip("the processes of one user are counted together")
    rules, full, over = cage.rules(tasks=TASKS), cage.work / "full", cage.work / "over"
    for fifo in (full, over):
        os.mkfifo(fifo)
    bomb = FORK_BOMB.replace(
        "for pid", "open('full', 'w').close(); open('over').close()\nfor pid", 1
    )
    with ThreadPoolExecutor() as threads:
        held = threads.submit(cage.attempt, WORKSPACE, backend, bomb, rules=rules)
        full.read_bytes()
        ended = cage.attempt(READ_ONLY, backend, "print(os.fork() and 'forked')", rules=rules)
        over.write_bytes(b"")
        assert held.result().said.startswith("bounded")
    for fifo in (full, over):
        fifo.unlink()
    assert "forked" in ended.said, ended.said


@pytest.mark.usefixtures("bounded_tasks")
def test_commands_that_have_ended_leave_no_control_group(cage: Cage, backend: Backend) -> None:
    for _ in range(20):
        cage.attempt(READ_ONLY, backend, "print()")
    # Commands of other tests may run, or have just ended.
    assert len(list(GROUPS.glob("roost-*"))) < 10


def test_a_memory_bomb_is_bounded(cage: Cage, backend: Backend, policy: Policy) -> None:
    code = "b = bytearray(300 << 20)"
    ended = cage.attempt(policy, backend, code, rules=cage.rules(data_bytes=200 * MIB))
    assert "MemoryError" in ended.said


def test_a_bomb_of_shared_memory_is_bounded(cage: Cage, backend: Backend, policy: Policy) -> None:
    code = "import mmap; mmap.mmap(-1, 3 << 30)"
    ended = cage.attempt(policy, backend, code, rules=cage.rules(address_bytes=2048 * MIB))
    assert "OSError: [Errno 12]" in ended.said


def test_a_file_is_bounded(cage: Cage, backend: Backend) -> None:
    code = "open('big', 'wb').write(bytes(2 << 20))"
    ended = cage.attempt(WORKSPACE, backend, code, rules=cage.rules(file_bytes=MIB))
    assert "OSError: [Errno 27]" in ended.said
    assert (cage.work / "big").stat().st_size <= MIB


def test_a_file_in_shared_memory_is_bounded(cage: Cage, backend: Backend, policy: Policy) -> None:
    code = "f = open('/dev/shm/x', 'wb')\nwhile True: f.write(bytes(8 << 20))"
    ended = cage.attempt(policy, backend, code)
    assert "Error" in ended.said
    assert not Path("/dev/shm/x").exists()


def test_open_files_are_bounded(cage: Cage, backend: Backend, policy: Policy) -> None:
    code = "fds = [os.open('/dev/null', 0) for _ in range(200)]"
    ended = cage.attempt(policy, backend, code, rules=cage.rules(open_files=100))
    assert "OSError: [Errno 24]" in ended.said


def test_a_crash_leaves_no_core_file(cage: Cage, backend: Backend) -> None:
    code = "print(resource.getrlimit(resource.RLIMIT_CORE))"
    assert cage.attempt(WORKSPACE, backend, code).said == "(0, 0)\n"


def test_when_memory_runs_out_the_command_goes_first(cage: Cage, backend: Backend) -> None:
    code = "print(open('/proc/self/oom_score_adj').read().strip())"
    assert cage.attempt(WORKSPACE, backend, code).said == "1000\n"


def test_under_landlock_a_command_keeps_the_limit_by_which_it_is_known(cage: Cage) -> None:
    code = """
import ctypes
print(resource.getrlimit(10) == (resource.RLIM_INFINITY,) * 2)
for sets in (resource.setrlimit, lambda *a: resource.prlimit(0, *a)):
    try: sets(10, (7, 7))
    except (OSError, ValueError) as error: print('refused')
libc = ctypes.CDLL(None, use_errno=True)
number = 160 if os.uname().machine == 'x86_64' else 164
print(libc.syscall(number, 10, ctypes.create_string_buffer(16)), ctypes.get_errno() == errno.EPERM)
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
"""
    ended = cage.attempt(WORKSPACE, backend_of("landlock"), code)
    assert (ended.code, ended.said) == (0, "True\nrefused\nrefused\n-1 True\n")


def test_nothing_of_the_daemon_is_handed_down(cage: Cage, backend: Backend) -> None:
    code = "print(len(os.listdir('/proc/self/fd')), sorted(os.environ))"
    ended = cage.attempt(WORKSPACE, backend, code, env={"LANG": "C.UTF-8", "ROOST_COMMAND": "c"})
    names = ["LANG", "PATH", "PWD", "ROOST_COMMAND"]
    if backend.name == "landlock":
        names.remove("PWD")
    assert ended.said == f"4 {names}\n"


def test_the_working_folder_and_the_temporary_folders_may_be_written(
    cage: Cage, backend: Backend
) -> None:
    scratch = cage.root / "scratch"
    scratch.mkdir(exist_ok=True)
    code = """
import tempfile
for folder in ('.', 'sub', '/tmp', os.environ['TMPDIR']):
    name = folder + '/roost-sandbox-test'
    with open(name, 'w') as file: file.write('x')
    os.rename(name, name + '2')
    os.unlink(name + '2')
os.rename('file', 'sub/file'); os.rename('sub/file', 'file')
"""
    ended = cage.attempt(WORKSPACE, backend, code, env={"TMPDIR": str(scratch)})
    assert (ended.code, ended.said) == (0, "")


def test_temporary_folders_can_be_excluded(cage: Cage, backend: Backend) -> None:
    policy = Policy(type="workspaceWrite", exclude_slash_tmp=True, exclude_tmpdir=True)
    ended = cage.attempt(policy, backend, "open('/tmp/roost-sandbox-test', 'w')")
    assert "Error" in ended.said


def test_further_folders_may_be_written(cage: Cage, backend: Backend) -> None:
    further = cage.root / "further"
    further.mkdir(exist_ok=True)
    policy = Policy(type="workspaceWrite", writable_roots=("../../further", "../../home", "/gone"))
    code = f"open('{further}/x', 'w').write('x')\nopen(HOME + '/x', 'w')"
    ended = cage.attempt(policy, backend, code)
    assert (further / "x").read_text() == "x"
    assert "Error" in ended.said
    assert not (cage.home / "x").exists()


@pytest.mark.parametrize("name", ["USER", "HOME", "USER + '/.ssh'", "WORK + '/.git'", "WORK"])
def test_what_leads_to_something_special_cannot_be_moved(
    cage: Cage, backend: Backend, name: str
) -> None:
    if backend.name == "landlock" and name.startswith("WORK"):
        pytest.skip("named in docs/sandbox.md as not covered")
    policy = Policy(type="workspaceWrite", writable_roots=(str(cage.root),))
    ended = cage.attempt(policy, backend, f"os.rename({name}, OUTSIDE + '/moved')")
    assert "Error" in ended.said
    assert (cage.work / ".git" / "config").exists()


def test_an_exposed_part_of_the_home_may_be_read_and_not_written(
    cage: Cage, backend: Backend
) -> None:
    (cage.home / "workspaces" / "mine" / "note").write_text("mine")
    code = (
        "print(open(HOME + '/workspaces/mine/note').read())\nopen(HOME + '/workspaces/mine/x', 'w')"
    )
    ended = cage.attempt(WORKSPACE, backend, code)
    assert ended.said.endswith("mine\n")
    assert "Error" in ended.said


def test_a_working_folder_in_the_home_may_be_written(cage: Cage, backend: Backend) -> None:
    mine = cage.home / "workspaces" / "mine"
    wanted = launch(
        WORKSPACE,
        backend,
        ("/bin/sh", "-c", f"echo new > made && cat {cage.home}/daemon.cookie"),
        str(mine),
        {},
        home=str(cage.home),
        rules=cage.rules(),
        exposed=(str(mine),),
    )
    ended = cage.start(wanted)
    assert (mine / "made").read_text() == "new\n"
    assert ended.code == 1
    assert SECRET not in ended.said


def test_a_network_is_there_when_the_policy_says_so(cage: Cage, backend: Backend) -> None:
    policy = Policy(type="readOnly", network=True)
    ended = cage.attempt(policy, backend, "socket.create_connection(('127.0.0.1', PORT), 5)")
    assert (ended.code, ended.said) == (0, "")
    assert list(cage.faults()) == ["it connected to the tcp listener"]


def test_ordinary_programs_work(cage: Cage, backend: Backend) -> None:
    script = """
set -e
ls -la >/dev/null
cat <<EOF | sort | head -1
two
one
EOF
sleep 0 & wait
echo x >/dev/null 2>/dev/stdout
test -c /dev/tty
[ "$(head -c 4 /dev/zero | wc -c)" = 4 ]
"""
    ended = cage.run(WORKSPACE, backend, ("/bin/sh", "-c", script))
    assert (ended.code, ended.said) == (0, "one\n")


def test_the_exit_code_and_the_arguments_are_the_programs_own(cage: Cage, backend: Backend) -> None:
    argv = ("sh", "-c", 'echo "$0|$1|$2"; exit 7', "a b", "", "é'=")
    ended = cage.run(READ_ONLY, backend, argv)
    assert (ended.code, ended.said) == (7, "a b||é'=\n")


def test_there_may_be_more_variables_and_arguments_than_bubblewrap_takes(
    cage: Cage, backend: Backend
) -> None:
    code = """
print(len(sys.argv), sys.argv[-1], sum(name.startswith('MANY') for name in os.environ))
print(os.environ['MANY0'] == 'a b=\\udcff\\n', os.environ['PWD'] == os.getcwd())
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, len(os.listdir('/proc/self/fd')))
sys.exit(7)
"""
    env = {f"MANY{number}": "a b=\udcff\n" for number in range(4_000)} | {"PWD": str(cage.work)}
    program = (sys.executable, "-I", "-S", "-c", "import os, signal, sys" + code)
    for count in (1, 10_000):
        ended = cage.run(WORKSPACE, backend, (*program, *["é"] * count), env=env)
        assert (ended.code, ended.said) == (7, f"{count + 1} é 4000\nTrue True\nTrue 4\n")


def test_a_program_that_is_not_there_cannot_be_started(cage: Cage, backend: Backend) -> None:
    with pytest.raises(LaunchError, match="No such file"):
        cage.run(READ_ONLY, backend, ("no-such-program",))
    with pytest.raises(LaunchError, match="Permission denied"):
        cage.run(READ_ONLY, backend, (str(cage.work / "file"),))


def test_the_environment_has_no_effect_on_what_confines(cage: Cage, backend: Backend) -> None:
    env = {"LD_PRELOAD": "/nowhere/x.so", "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    ended = cage.run(READ_ONLY, backend, ("/bin/sh", "-c", "echo $LD_PRELOAD"), env=env)
    assert ended.code == 0
    assert ended.said.splitlines()[-1] == "/nowhere/x.so"


def test_all_files_cannot_be_a_workspace(cage: Cage, backend: Backend) -> None:
    policy = Policy(type="workspaceWrite", writable_roots=("/",))
    with pytest.raises(LaunchError, match="dangerFullAccess"):
        cage.attempt(policy, backend, "")


def test_nothing_runs_without_a_backend(cage: Cage) -> None:
    with pytest.raises(SandboxUnavailable, match="because"):
        cage.attempt(READ_ONLY, Backend(detail="because"), "")
    argv = (sys.executable, "-c", "print(1)")
    assert cage.run(FULL_ACCESS, Backend(), argv).said == "1\n"
    external = msgspec.structs.replace(FULL_ACCESS, type="externalSandbox")
    assert cage.run(external, Backend(), argv).said == "1\n"
