"""The tree of processes that the root process keeps: services in order, any number of dynamic children, their links.

The application gives data and three callbacks; everything else is here:

    spec = ProcessSpec(
        id="store",                      # its name in the tree and at the ends of its links
        kind="store",                    # picks the actor in the child (`serve_process`)
        payload=boot_bytes,              # Callable[[], bytes]: called at each start, becomes `Start.payload`
        log=home / "logs/store.log",     # stdout and stderr of the child; its tail is its last words; None: root's own
        restart=Restart.PERMANENT,       # PERMANENT, TRANSIENT, TEMPORARY
        shutdown=Grace(5.0),             # Kill(), Grace(seconds), Wait()
        ready_timeout=30.0,
        hang_timeout=30.0,               # None: not watched; only while the child says `Busy(working=True)`
        memory_limit=1 << 30,            # None: no limit
        handles=lambda: [("listener.unix", fd)],  # listeners: a duplicate travels behind `Start` at every start
        env={},                          # becomes `Start.env`, under what `Remember` kept
        commands=True,                   # may send StartChild, StopChild, KillChild, Remember, AskTree (store, front)
        sweeps=False,                    # True: after its end, orphans that it left to root are killed (agents, commands)
    )
    tree = ProcessTree(
        starting=Starting(
            mode="zygote",               # or "spawn"
            entry="roost.actors.worker:main",     # main(control_fd: int) -> None, called in every child, both modes
            preload=("roost.actors.worker", ...), # zygote only
            warm_up="roost.actors.worker:warm_up",# zygote only, "" for none; a finished trio.run is allowed
            spawn_module="roost.actors.worker",   # spawn only: `python -P -m MODULE FD`; its __main__ part calls
                                                  # roost.supervisor.birth.run_spawned("roost.actors.worker:main")
            log=home / "logs/zygote.log",
        ),
        services=(store, providers, front),       # started in this order, each ready before the next; one_for_one, 10 in 60 s
        dynamic=Dynamic(
            name="agents",               # the parent in AskTree's answer
            prefix="agent:",             # name at links = prefix + child_id; child_id in every message is the bare id
            make=make_agent,             # Callable[[str], ProcessSpec]: the spec of a child by its child_id (id = child_id)
            budget=Intensity(5, 60.0),   # each child has its own
            max_children=1024,
            watchers=("store", "front"), # services told with ChildReport what happens to dynamic children
        ),
        links=(("front", "store"), ("front", "agent:*"), ("agent:*", "store"), ("agent:*", "providers"), ...),
        on_report=sink,                  # Callable[[Report], None]: every start, ready, exit, restart, give-up
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)    # returns when all services are ready; StartError says who did not get ready and why
        ...
        await tree.stop("asked to", grace=5.0)    # dynamic children at once, then services in reverse; then tree.run returns

`tree.run` must run in the main thread of the process. It makes the process a subreaper and reaps every child of it.
It raises `RestartLimitReached` when a service crashes too often, after everything has been stopped. Cancelling it
stops everything too. Other things to call, all from the same loop:

    tree.poller                          # root's one poller; its other sockets may use it
    tree.snapshot()                      # tuple[control.TreeNode, ...], what AskTree is answered with
    tree.ensure_child("abc", fresh=False)
    await tree.stop_child("abc", reason="stopped", grace=5.0)   # also for services (they can be started again by ensure)
    await tree.restart_service("store", reason="asked to")
    tree.kill_child("abc", generation, reason="memory")
    tree.hurry()                         # second SIGTERM: every stop goes straight to SIGKILL

How messages are answered: StartChild is a cast (a call is answered with Done at once); StopChild, Remember: Done; AskTree:
Tree; a child without `commands=True` gets Refused. A StartChild that comes after a child got ready and before it ends by
itself starts it again when it is reaped. One without `fresh` for a child that was given up is answered to its sender
by the report `gave_up` again.
A watcher that (re)starts is told `gave_up` or `crashed` again for each dynamic child that does not run just then.
"""
