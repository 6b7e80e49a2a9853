"""Python environments in supervised worker processes.

Nothing here imports JAX: a worker starts as fast as the environment it runs.

    pool.py           the supervisor: starts, watches, restarts and ends workers
    process.py        workers as processes of this machine
    ray.py            workers on the nodes of a Ray cluster
    child.py          what runs in a worker
    picture_child.py  what runs in the process of an environment that is drawn (`emu.envs.pictures`)
    guardian.py       the process between: whatever a worker starts ends with it
    guarded.py        how processes are started under a guardian
    shared_arrays.py  the arrays they share, and the messages they exchange
"""
