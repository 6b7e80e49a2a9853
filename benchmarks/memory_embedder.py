"""One embedder interval at full size, and what the embedders make of recorded gridworld memories.

    python benchmarks/memory_embedder.py                         # train, sample, re-embed 1M states of 216 floats
    python benchmarks/memory_embedder.py --entries 100000
    python benchmarks/memory_embedder.py --pictures docs/images --keys keys.npy     # record, train, draw, keep keys

The interval uses both cores, so its times are wall-clock (best and median of the repeats) and need a quiet machine;
CPU seconds are given beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.devices import configure_cpu_devices

configure_cpu_devices()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from emu import envs  # noqa: E402
from emu.memory import EpisodicMemory  # noqa: E402
from emu.memory.embedders import Embedder  # noqa: E402
from emu.memory.options import EmbedderOptions  # noqa: E402


def clock(name: str, work: Callable[[], Any], repeats: int) -> Any:
    walls, cpus, out = [], [], work()
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        out = work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    median, cpu = statistics.median(walls), statistics.median(cpus)
    print(f"{name:>34}: best {min(walls):.3f} s, median {median:.3f} s, CPU {cpu:.3f} s", flush=True)
    return out


def interval(entries: int, state_dim: int, repeats: int) -> None:
    """102,400 samples of training, then every embedding, statistic and key of the memory anew."""
    print(
        f"{entries:,} entries of {state_dim} floats, {len(jax.local_devices())} devices, load {os.getloadavg()[0]:.1f}"
    )
    rng = np.random.default_rng(0)
    embedder = Embedder(state_dim, 100)
    state = embedder.init(jax.random.key(0))
    memory = EpisodicMemory(state_dim=state_dim, capacity=entries, radius=1e-9)
    while len(memory) < entries:
        states = rng.standard_normal((2_001, state_dim), np.float32)
        memory.update([Steps(states, rng.normal(size=2_000), False)])
    states, times, returns = clock("sample 102,400", lambda: memory.sample(102_400, rng), repeats)
    state, _ = clock("train on them", lambda: embedder.train(state, states, times, returns, jax.random.key(1)), repeats)
    encode = embedder.encoder(state)
    clock("re-embed and re-index everything", lambda: memory.reembed(encode), repeats)
    clock("  of which statistics and index", memory.reembed, repeats)

    def whole() -> None:
        new, _ = embedder.train(state, *memory.sample(102_400, rng), jax.random.key(1))
        memory.reembed(embedder.encoder(new))

    clock("the whole interval", whole, repeats)
    layers = state_dim * 64 + 64 * 64 + 64 * 4
    train = 3 * 102_400 * 2 * (layers + 4 * 64 + 64 * 64 + 64 * (state_dim + 1))
    print(f"floating-point operations: training {train / 1e9:.0f} G, re-embedding {2 * entries * layers / 1e9:.0f} G")


class Steps(NamedTuple):
    state: np.ndarray
    reward: np.ndarray
    won: bool


def record(episodes: int, seed: int) -> list[Steps]:
    """Gridworld episodes of agents that head for their goals with a probability between 0 and 0.9 a step."""
    env: Any = envs.make("gridworld")
    limit = env.spec.episode_limit

    def episode(key: jax.Array, skill: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            state, over = carry
            keys = jax.random.split(key, 3)
            avail = env.avail(state)
            free = jax.random.categorical(keys[0], jnp.where(avail, 0.0, -jnp.inf))
            gap = jnp.asarray(env.goals) - state.position
            row = jnp.where(gap[:, 0] < 0, 0, 1)
            column = jnp.where(gap[:, 1] < 0, 2, 3)
            heading = jnp.where(gap[:, 0] != 0, row, jnp.where(gap[:, 1] != 0, column, 4))
            action = jnp.where(jax.random.uniform(keys[1], (2,)) < skill, heading, free)
            new, outcome = env.step(state, action, keys[2])
            done = over | outcome.terminated | outcome.truncated
            return (new, done), (env.state(state), outcome.reward, over, outcome.won, env.state(new))

        start = env.reset(key), jnp.bool_(False)
        return jax.lax.scan(step, start, jax.random.split(key, limit))[1]

    keys = jax.random.split(jax.random.key(seed), episodes)
    skills = jnp.linspace(0.0, 0.9, episodes)
    states, rewards, over, won, after = map(np.asarray, jax.jit(jax.vmap(episode))(keys, skills))
    lengths = (~over).sum(axis=1)
    return [
        Steps(np.concatenate([s[:n], a[n - 1 : n]]), r[:n], bool(w[:n].any()))
        for s, r, w, a, n in zip(states, rewards, won, after, lengths, strict=True)
    ]


def fit(kind: str, episodes: list[Steps], intervals: int, **options: Any) -> EpisodicMemory:
    """Fill a memory episode by episode with the embedder training along, as in a run."""
    embedder = Embedder(episodes[0].state.shape[1], 30, options=EmbedderOptions(kind=kind, **options))
    state, rng = embedder.init(jax.random.key(0)), np.random.default_rng(0)
    memory = EpisodicMemory(state_dim=episodes[0].state.shape[1], radius=1.3e-3, encode=embedder.encoder(state))
    metrics: dict[str, Any] = {}
    for turn in range(intervals):
        memory.update(episodes[turn::intervals])
        state, metrics = embedder.train(state, *memory.sample(102_400, rng), jax.random.key(turn))
        memory.reembed(embedder.encoder(state))
    print(f"{kind} {options}: {len(memory):,} entries, {memory.stats()['mean_visits']:.1f} visits each, {metrics}")
    return memory


def neighbours_disagree(table: dict[str, np.ndarray]) -> float:
    """Mean |difference of H| to the nearest other key, over the spread of H: 0 when neighbours are worth the same."""
    from scipy.spatial import KDTree

    keys, value = table["key"], table["best_return"]
    ids = np.asarray(KDTree(keys).query(keys, k=2)[1])
    return float(np.abs(value - value[ids[:, 1]]).mean() / value.std())


def draw(tables: dict[str, dict[str, np.ndarray]], path: Path, samples: int = 2_500) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from sklearn.manifold import TSNE

    figure, axes = plt.subplots(1, len(tables), figsize=(4.2 * len(tables), 4.4), constrained_layout=True)
    dots: Any = None
    for axis, (name, table) in zip(axes, tables.items(), strict=True):
        ids = np.random.default_rng(0).permutation(len(table["t"]))[:samples]
        flat = TSNE(2, init="pca", perplexity=40, max_iter=600, random_state=0).fit_transform(table["key"][ids])
        value = table["best_return"][ids]
        order = np.argsort(value)
        dots = axis.scatter(*flat[order].T, c=value[order], s=3, cmap="rainbow_r", vmin=-6, vmax=10)
        stars = table["desirable"][ids]
        axis.set_title(f"{name}\n{len(table['t']):,} entries, {100 * stars.mean():.0f}% desirable, "
                       f"neighbours differ {neighbours_disagree(table):.2f} σ", fontsize=9)  # fmt: skip
        axis.set(xticks=[], yticks=[])
    figure.colorbar(dots, ax=axes, label="highest return H", shrink=0.8)
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def pictures(folder: Path, keys: str | None, episodes: int, intervals: int) -> None:
    recorded = record(episodes, 0)
    print(f"recorded {sum(len(e.reward) for e in recorded):,} steps, {sum(e.won for e in recorded):,} wins")
    rng = np.random.default_rng(0)
    recorded = [recorded[i] for i in rng.permutation(len(recorded))]
    memories = {kind: fit(kind, recorded, intervals) for kind in ("random", "embnet", "dcae")}
    tables = {name: memory.export() for name, memory in memories.items()}
    folder.mkdir(parents=True, exist_ok=True)
    draw(tables, folder / "memory_embedders.png")
    cases = {
        case: fit("dcae", recorded, intervals, loss_case=case).export()
        for case in ("reconstruction_no_time", "reconstruction_time", "return_only")
    }
    draw({**cases, "both": tables["dcae"]}, folder / "memory_loss_cases.png")
    if keys:
        np.save(keys, tables["dcae"]["key"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--state-dim", type=int, default=216)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pictures", type=Path, help="record, train and draw into this folder instead")
    parser.add_argument("--keys", help="with --pictures: keep the dCAE's keys here (.npy)")
    parser.add_argument("--episodes", type=int, default=6_000)
    parser.add_argument("--intervals", type=int, default=150)
    options = parser.parse_args()
    if options.pictures:
        pictures(options.pictures, options.keys, options.episodes, options.intervals)
    else:
        interval(options.entries, options.state_dim, options.repeats)


if __name__ == "__main__":
    main()
