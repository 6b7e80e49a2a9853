"""Python environments in supervised worker processes, and adapters to other people's environments.

Nothing here imports JAX: a worker starts as fast as the environment it runs.

    pool.py     the supervisor: starts, watches, restarts and ends workers
    process.py  workers as processes of this machine
    ray.py      workers on the nodes of a Ray cluster
    worker.py   what runs in a worker
    board.py    the memory they share, and the messages they exchange
    players.py  scripted players, for `emu play`
"""
