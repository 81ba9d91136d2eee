"""A child as a trio task: readiness, its own cancel scope, and its end as data instead of an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import trio

from roost.supervisor.errors import StartError, SupervisorError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one run of a child that had been ready; `error` None means that it ended normally.

    `asked` says that its scope was cancelled.
    """

    child: str
    generation: int
    error: str | None
    asked: bool
    last_words: str = ""


class ChildRun:
    """One run of a child: what the child sees of it (`spec.Run`), and what its supervisor does with it."""

    def __init__(
        self, child: str, generation: int, on_ready: Callable[[ChildRun], None] | None = None
    ) -> None:
        self.child = child
        self.generation = generation
        self.pid = 0
        self.reached = False
        self.began = trio.current_time()
        self.ended = trio.Event()
        # Once the child is ready, the scope is shielded: then only its supervisor ends it, in its own order.
        self.scope = trio.CancelScope()
        self.kill_reason = ""
        self.stop_asked = False
        self.stop_reason = ""
        self._on_ready = on_ready
        self._status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._task: trio.lowlevel.Task | None = None
        self._on_stop: Callable[[str, float], None] | None = None
        self._on_kill: Callable[[str], None] | None = None

    def started(self, value: None = None) -> None:
        """Report that the child is ready."""
        self.reached = True
        if self._on_ready is not None:
            self._on_ready(self)
        starting = self._task.parent_nursery if self._task is not None else None
        self._status.started(value)
        # A start that was cancelled before keeps its child and waits for the child's end: behind a shield it never came.
        moved = self._task is None or self._task.parent_nursery is not starting
        self.scope.shield = moved or self._status is trio.TASK_STATUS_IGNORED

    def on_stop(self, callback: Callable[[str, float], None]) -> None:
        """Call `callback(reason, grace)` when the child is asked to stop, instead of cancelling it at once."""
        self._on_stop = callback

    def on_kill(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` to end the child by force, instead of cancelling it."""
        self._on_kill = callback

    def set_pid(self, pid: int) -> None:
        """Say which process carries the child."""
        self.pid = pid

    def bind(self, status: trio.TaskStatus[None], task: trio.lowlevel.Task) -> None:
        """Tell `status` when the child, which runs in `task`, is ready."""
        self._status = status
        self._task = task

    def ask_stop(self, reason: str, grace: float) -> bool:
        """Ask the child to stop; return False, after cancelling it, if it cannot be asked."""
        if self._on_stop is None or not self.reached:
            self.scope.cancel()
            return False
        self._on_stop(reason, grace)
        return True

    def kill(self, reason: str) -> None:
        """End the child by force; it counts as a crash unless the supervisor is stopping it."""
        self.kill_reason = self.kill_reason or reason
        if self._on_kill is not None:
            self._on_kill(reason)
        if self._on_kill is None or not self.reached:
            self.scope.cancel()


async def run_child(
    run: ChildRun,
    main: Callable[[ChildRun], Awaitable[None]],
    on_exit: Callable[[Exit], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one child; once it is ready, its end is an `Exit` and never an exception in the nursery.

    Raises:
        StartError: it ended, or was stopped, before it was ready.
    """
    run.bind(task_status, trio.lowlevel.current_task())
    error: str | None = None
    words = ""
    try:
        with (
            run.scope
        ):  # inside the try: what a child raises while it is cancelled must not escape either
            await main(run)
    except Exception as exc:
        if not run.reached:
            raise _as_start_error(exc) from exc
        error = _describe(exc)
        words = getattr(exc, "last_words", "")
    finally:
        run.ended.set()
    if not run.reached:
        raise StartError(run.kill_reason or "it ended before it was ready")
    asked = run.scope.cancelled_caught
    if asked and run.kill_reason:
        error = f"killed: {run.kill_reason}"
    on_exit(
        Exit(child=run.child, generation=run.generation, error=error, asked=asked, last_words=words)
    )


def _as_start_error(exc: Exception) -> StartError:
    return exc if isinstance(exc, StartError) else StartError(_describe(exc))


def _describe(exc: BaseException) -> str:
    if isinstance(exc, SupervisorError):
        return str(exc)
    if isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exc)  # the narrowed type knows no member
        return "; ".join(map(_describe, group.exceptions))
    return f"{type(exc).__name__}: {exc}"
