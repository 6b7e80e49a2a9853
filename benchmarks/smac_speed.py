"""Environment steps a second of the SMAC-compatible simulator, beside SMAX (package `jaxmarl`), in one run.

    python benchmarks/smac_speed.py [--smax-python PYTHON] [--before SOURCES] [--turns 3] [--copies 32] [--json FILE]

Random available actions; observation, state and availability are computed every step; the copies are shared out over
two CPU devices. Each contender runs in a process of its own, the two in turns, as often as `--turns` says. The median
of several rounds counts, and of the turns' ratios: compare the two columns of one run, not figures of different runs.
`--smax-python` names an interpreter that has jaxmarl installed, so that its pins stay out of our environment; without
it only our side is measured. `--before` names the `src` folder of another version of this package (`git worktree add`),
which then takes part on SMAC's maps; the column "new/old" is the ratio to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial

MAPS = {"smac/3s_vs_5z": "3s_vs_5z", "smac/3s5z": "3s5z", "smac/5m_vs_6m": "5m_vs_6m"}  # ours: SMAX's
SCENARIOS = {
    f"smacv2/{race}_{n}_vs_{n}": f"smacv2_{n}_units" for n in (5, 10) for race in ("terran", "protoss", "zerg")
}  # SMAX draws units of all its types
LARGE = ("smac/27m_vs_30m", "smac/2c_vs_64zg")
COPIES = (32, 256, 1024)


def main() -> None:
    args = _arguments()
    if args.worker:
        _work(args.worker, args.map, args.copies, args.rounds)
        return
    rows = []
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    head = f"{'map':24} {'copies':>6} {'emu steps/s':>12} {'SMAX steps/s':>13}"
    print(f"{head} {'ratio':>6} {'new/old':>8} {'compile s':>10}")
    for name, copies in _cases(args.copies, args.only):
        row = _case(name, copies, args)
        rows.append(row)
        ours, theirs, ratios = row["emu"], row["smax"], row["ratios"]
        other = f"{_rate(theirs):13,.0f}" if theirs else " " * 13
        ratio = f"{statistics.median(ratios):6.2f}" if ratios else " " * 6
        gain = f"{statistics.median(row['gains']):8.2f}" if row["gains"] else " " * 8
        compiles = "/".join(f"{runs[0]['compile']:.0f}" for runs in (ours, theirs) if runs)
        each = "  (" + ", ".join(f"{r:.2f}" for r in ratios) + ")" if len(ratios) > 1 else ""
        print(f"{name:24} {copies:6} {_rate(ours):12,.0f} {other} {ratio} {gain} {compiles:>10}{each}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"load": os.getloadavg(), "cores": os.cpu_count(), "rows": rows}, file, indent=1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--smax-python", default=None)
    parser.add_argument("--before", default=None, help="sources of another version, to compare SMAC's maps with")
    parser.add_argument("--only", default="", help="only maps whose name has this in it")
    parser.add_argument("--turns", type=int, default=1, help="how often the two run, one after the other")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default=None)
    parser.add_argument("--worker", choices=("emu", "smax"), help=argparse.SUPPRESS)
    parser.add_argument("--map", help=argparse.SUPPRESS)
    parser.add_argument("--copies", type=int, help="only this number of copies, and not the large maps")
    return parser.parse_args()


def _cases(copies: int | None, only: str) -> list[tuple[str, int]]:
    cases = [(name, count) for name in (*MAPS, *SCENARIOS) for count in ([copies] if copies else COPIES)]
    large = [] if copies else [(name, 64) for name in LARGE]
    return [(name, count) for name, count in cases + large if only in name]


def _case(name: str, copies: int, args: argparse.Namespace) -> dict:
    """The contenders in turns; on the large maps only ours."""
    ours, theirs, ratios, gains = [], [], [], []
    peer = (MAPS | SCENARIOS).get(name)
    for _ in range(args.turns):
        ours.append(_run(sys.executable, "emu", name, copies, args.rounds))
        rate = ours[-1]["steps_per_second"]
        if args.smax_python and peer:
            theirs.append(_run(args.smax_python, "smax", peer, copies, args.rounds))
            ratios.append(rate / theirs[-1]["steps_per_second"])
        if args.before and name.startswith("smac/"):
            before = _run(sys.executable, "emu", name, copies, args.rounds, {"PYTHONPATH": args.before})
            gains.append(rate / before["steps_per_second"])
    return {"map": name, "copies": copies, "emu": ours, "smax": theirs, "ratios": ratios, "gains": gains}


def _rate(runs: list[dict]) -> float:
    return statistics.median(run["steps_per_second"] for run in runs)


def _run(python: str, worker: str, name: str, copies: int, rounds: int, environ: dict | None = None) -> dict:
    command = [python, __file__, "--worker", worker, "--map", name, "--copies", str(copies), "--rounds", str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | (environ or {}))
    return json.loads(done.stdout.strip().splitlines()[-1])


def _work(worker: str, name: str, copies: int, rounds: int) -> None:
    """In a process of its own: compile a rollout, time it, print the result as JSON."""
    import jax

    jax.config.update("jax_num_cpu_devices", 2)
    steps = max(8, 12_800 // copies)
    start, step = (_emu if worker == "emu" else _smax)(name)
    mesh = jax.sharding.Mesh(jax.devices(), ("copies",))
    spread = jax.sharding.PartitionSpec("copies")
    per_device = copies // 2

    def rollout(state, seeds):
        def body(state, key):
            return step(state, jax.random.split(key, per_device))

        return jax.lax.scan(body, state, jax.random.split(jax.random.key(seeds[0]), steps))

    share = partial(jax.shard_map, mesh=mesh, in_specs=(spread, spread), check_vma=False)
    program = jax.jit(share(rollout, out_specs=(spread, jax.sharding.PartitionSpec(None, "copies"))))
    state = jax.vmap(start)(jax.random.split(jax.random.key(0), copies))
    state = jax.device_put(state, jax.sharding.NamedSharding(mesh, spread))
    seeds = jax.numpy.arange(2)
    begin = time.perf_counter()
    compiled = program.lower(state, seeds).compile()
    compile_time = time.perf_counter() - begin
    times = []
    for k in range(rounds + 1):
        begin = time.perf_counter()
        state, out = compiled(state, seeds + 2 * k)
        jax.block_until_ready(out)
        times.append(time.perf_counter() - begin)
    rate = copies * steps / statistics.median(times[1:])
    print(json.dumps({"steps_per_second": rate, "compile": compile_time, "jax": jax.__version__}))


def _emu(name: str):
    import jax
    import jax.numpy as jnp

    import emu.envs

    env = emu.envs.make(name)

    def play(state, key):
        act_key, step_key = jax.random.split(key)
        avail = env.avail(state)
        action = jnp.argmax(jnp.where(avail, jax.random.uniform(act_key, avail.shape), -1.0), axis=1)
        return env.step(state, action.astype(jnp.int32), step_key)

    def step(states, keys):
        states, outcome = jax.vmap(play)(states, keys)
        states = _begin_again(env, states, outcome.terminated | outcome.truncated, keys)
        shown = (jax.vmap(look)(states) for look in (env.observe, env.state, env.avail))
        return states, (*shown, outcome.reward)

    return env.reset, step


def _begin_again(env, states, over, keys):
    """As the trainer does it; older versions begin an episode for every copy and choose."""
    import jax
    import jax.numpy as jnp

    try:
        from emu.play.compiled import begin_again
    except ImportError:
        pass
    else:
        return begin_again(env, states, over, keys)

    def one(state, over, key):
        return jax.tree.map(lambda old, new: jnp.where(over, new, old), state, env.reset(key))

    return jax.vmap(one)(states, over, keys)


def _smax(name: str):
    import jax
    import jax.numpy as jnp
    from jaxmarl import make
    from jaxmarl.environments.smax import map_name_to_scenario

    env = make("HeuristicEnemySMAX", scenario=map_name_to_scenario(name))

    def available(state):
        return jnp.stack([env.get_avail_actions(state)[agent] for agent in env.agents])

    def start(key):
        return env.reset(key)[1]

    def step(state, key):
        act_key, step_key = jax.random.split(key)
        avail = available(state)
        chosen = jnp.argmax(jnp.where(avail > 0, jax.random.uniform(act_key, avail.shape), -1.0), axis=1)
        actions = {agent: chosen[i] for i, agent in enumerate(env.agents)}
        obs, state, reward, _, _ = env.step(step_key, state, actions)
        seen = jnp.stack([obs[agent] for agent in env.agents])
        return state, (seen, obs["world_state"], available(state), reward[env.agents[0]])

    return start, jax.vmap(step)


if __name__ == "__main__":
    main()
