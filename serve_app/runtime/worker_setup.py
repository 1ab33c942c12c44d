"""What each process of Ray does before it gets an actor."""


def set_up() -> None:
    """Prepare this process. Ray calls this in each of its processes that may get an actor.

    The watch of :mod:`serve_app.runtime.orphans` starts here, since Ray may give a process up before it has a replica.
    """
    from serve_app.runtime import orphans  # imports Ray

    orphans.start_watch()
