"""The episodic memory side by side with what else finds nearest neighbours, in one run on one core.

    python benchmarks/memory.py                          # about three minutes: 10K and 100K entries, all peers
    python benchmarks/memory.py --sizes 10000 100000 1000000 --json memory.json
    python benchmarks/memory.py --recorded keys.npy      # adds your own (n, 4) keys as a distribution

Times are CPU time of the calling thread, every library held to one thread, medians of repeats: comparable inside a run
even on a busy machine. Peers that are not installed are left out (`pip install emu-marl[bench]`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.memory import EpisodicMemory, RadiusIndex
from plain_hash import PlainHash  # beside this file

DIM = 4
MICRO = 1e6
Row = dict[str, Any]


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Median CPU seconds of the calling thread."""
    taken = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def gauss(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal((n, DIM), np.float32)


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    """A thousand clusters of width 0.01 (their centres do not change from call to call)."""
    centres = np.random.default_rng(1).standard_normal((1_000, DIM))
    return (centres[rng.integers(1_000, size=n)] + 0.01 * rng.standard_normal((n, DIM))).astype(np.float32)


def flat(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two of the four dimensions collapsed to a constant, as a dead unit of an encoder makes them."""
    keys = gauss(rng, n)
    keys[:, 2:] = 0
    return keys


def half_copies(rng: np.random.Generator, n: int) -> np.ndarray:
    """Half of the keys are one and the same."""
    keys = gauss(rng, n)
    keys[rng.random(n) < 0.5] = 0.3
    return keys


def half_near(rng: np.random.Generator, n: int) -> np.ndarray:
    """Half of the keys lie within a hundred-thousandth of one point: far below any radius, and all different."""
    keys = gauss(rng, n)
    near = rng.random(n) < 0.5
    keys[near] = 0.3 + 1e-5 * keys[near]
    return keys


def recorded(path: str) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Keys of a real memory; where fewer were recorded than asked for, copies with a hair of noise fill up."""
    keys = np.load(path).astype(np.float32)[:, :DIM]

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        chosen = keys[rng.integers(len(keys), size=n)]
        return (chosen + 1e-3 * rng.standard_normal(chosen.shape)).astype(np.float32)

    return draw


class Ours:
    name = "emu"
    exact = True

    def __init__(self, keys: np.ndarray, radius: float, spare: int = 0) -> None:
        self.index = RadiusIndex(DIM, radius, len(keys) + spare)
        self.index.rebuild(keys)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        return self.index.query(queries)[0]

    def query_or_insert(self, keys: np.ndarray) -> None:
        self.index.query_or_insert(keys)


class Tree:
    """A k-d tree with a side list: new keys wait in an array that is searched as a whole until the next rebuild."""

    exact = True
    side_limit = 1_000

    def __init__(self, keys: np.ndarray, radius: float, spare: int = 0) -> None:
        self.keys, self.radius = keys, radius
        self.side = np.empty((self.side_limit, DIM), np.float32)
        self.waiting = 0
        self.build()

    def build(self) -> None: ...

    def batch(self, queries: np.ndarray) -> np.ndarray: ...

    def query_or_insert(self, keys: np.ndarray) -> None:
        for key in keys:
            found = self.batch(key[None])[0] >= 0
            if not found and self.waiting:
                gaps = self.side[: self.waiting] - key
                found = (gaps * gaps).sum(axis=1).min() < self.radius**2
            if not found:
                self.side[self.waiting] = key
                self.waiting += 1
            if self.waiting == self.side_limit:
                self.keys, self.waiting = np.concatenate([self.keys, self.side]), 0
                self.build()


class Scipy(Tree):
    name = "scipy cKDTree"

    def build(self) -> None:
        self.tree = importlib.import_module("scipy.spatial").cKDTree(self.keys)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        gaps, ids = self.tree.query(queries, distance_upper_bound=self.radius)
        return np.where(np.isfinite(gaps), ids, -1)


class PyKdTree(Tree):
    name = "pykdtree"

    def build(self) -> None:
        self.tree = importlib.import_module("pykdtree.kdtree").KDTree(self.keys)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        gaps, ids = self.tree.query(queries, k=1, distance_upper_bound=self.radius)
        return np.where(np.isfinite(gaps), ids.astype(np.int64), -1)


class Sklearn(Tree):
    name = "scikit-learn KDTree"

    def build(self) -> None:
        self.tree = importlib.import_module("sklearn.neighbors").KDTree(self.keys)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        gaps, ids = self.tree.query(queries, k=1)
        return np.where(gaps[:, 0] < self.radius, ids[:, 0], -1)


class Graph:
    """Common to the libraries whose indices take new keys one at a time."""

    exact = False

    def __init__(self, keys: np.ndarray, radius: float, spare: int = 0) -> None:
        self.radius, self.next = radius, len(keys)
        self.make(keys, spare)

    def make(self, keys: np.ndarray, spare: int) -> None: ...

    def add(self, keys: np.ndarray) -> None: ...

    def batch(self, queries: np.ndarray) -> np.ndarray: ...

    def query_or_insert(self, keys: np.ndarray) -> None:
        for key in keys:
            if self.batch(key[None])[0] < 0:
                self.add(key[None])
                self.next += 1


class FaissFlat(Graph):
    name = "faiss flat"
    exact = True

    def make(self, keys: np.ndarray, spare: int) -> None:
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)
        self.index = self.kind(faiss)
        self.index.add(keys)

    def kind(self, faiss: Any) -> Any:
        return faiss.IndexFlatL2(DIM)

    def add(self, keys: np.ndarray) -> None:
        self.index.add(keys)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        gaps, ids = self.index.search(queries, 1)
        return np.where(gaps[:, 0] < self.radius**2, ids[:, 0], -1)


class FaissHnsw(FaissFlat):
    name = "faiss HNSW"
    exact = False

    def kind(self, faiss: Any) -> Any:
        return faiss.IndexHNSWFlat(DIM, 16)


class Hnswlib(Graph):
    name = "hnswlib"

    def make(self, keys: np.ndarray, spare: int) -> None:
        self.index = importlib.import_module("hnswlib").Index("l2", DIM)
        self.index.init_index(len(keys) + spare, M=16, ef_construction=100)
        self.index.set_num_threads(1)
        self.index.add_items(keys, np.arange(len(keys)))

    def add(self, keys: np.ndarray) -> None:
        self.index.add_items(keys, [self.next])

    def batch(self, queries: np.ndarray) -> np.ndarray:
        ids, gaps = self.index.knn_query(queries, k=1)
        return np.where(gaps[:, 0] < self.radius**2, ids[:, 0].astype(np.int64), -1)


class Usearch(Graph):
    name = "usearch"

    def make(self, keys: np.ndarray, spare: int) -> None:
        self.index = importlib.import_module("usearch.index").Index(ndim=DIM, metric="l2sq", dtype="f32")
        self.index.add(np.arange(len(keys)), keys, threads=1)

    def add(self, keys: np.ndarray) -> None:
        self.index.add(np.array([self.next]), keys, threads=1)

    def batch(self, queries: np.ndarray) -> np.ndarray:
        found = self.index.search(queries, 1, threads=1)
        keys, gaps = np.asarray(found.keys).reshape(-1), np.asarray(found.distances).reshape(-1)
        return np.where(gaps < self.radius**2, keys.astype(np.int64), -1)


PEERS = (PlainHash, Scipy, PyKdTree, Sklearn, FaissFlat, FaissHnsw, Hnswlib, Usearch)
COMPILED = (Ours, PlainHash)
SLOW_BUILD = (FaissHnsw, Hnswlib, Usearch)  # tens of seconds at a million keys


def measure(kind: Any, keys: np.ndarray, queries: np.ndarray, radius: float, repeats: int) -> Row:
    """Microseconds an operation, and seconds to build."""
    few = queries[:50] if kind is FaissFlat and len(keys) > 50_000 else queries
    few = few[:10_000] if kind in (FaissFlat, *SLOW_BUILD) else few  # the rest answer the same queries
    singles = queries[:2_000] if kind in COMPILED else queries[:200]
    inserts = queries if kind in COMPILED else queries[: 50 if kind is FaissFlat else 1_500]
    if kind in COMPILED:
        kind(keys[:2_000], radius, 100).query_or_insert(queries[:100])  # compile
    build = seconds(lambda: kind(keys, radius), 1 if kind in SLOW_BUILD else repeats)
    index = kind(keys, radius, spare=len(inserts))
    found = index.batch(few)
    row = {
        "build": build,
        "batch": seconds(lambda: index.batch(few), repeats) / len(few) * MICRO,
        "single": seconds(lambda: [index.batch(q[None]) for q in singles], repeats) / len(singles) * MICRO,
        "query_or_insert": seconds(lambda: index.query_or_insert(inserts), 1) / len(inserts) * MICRO,
        "hits": float(np.mean(found >= 0)),
    }
    truth = Ours(keys, radius).batch(few)
    row["agree"] = float(np.mean((found >= 0) == (truth >= 0)))
    return row


def compare(options: argparse.Namespace) -> list[Row]:
    kinds: dict[str, Any] = {
        "gauss": gauss,
        "clustered": clustered,
        "flat": flat,
        "half copies": half_copies,
        "half near": half_near,
    }
    if options.recorded:
        kinds["recorded"] = recorded(options.recorded)
    rows: list[Row] = []
    for size in options.sizes:
        for name, draw in kinds.items():
            rng = np.random.default_rng(0)
            keys, queries = draw(rng, size), draw(rng, 100_000)
            for radius in options.radii:
                for kind in (Ours, *PEERS):
                    if kind in SLOW_BUILD and (size > options.graphs_up_to or name != "gauss"):
                        continue
                    if kind is PlainHash and name != "gauss":  # one crowded cell and it takes minutes
                        continue
                    if kind is not Ours and name not in options.peers_on:
                        continue
                    if issubclass(kind, Graph) and radius != 1.3e-3:
                        continue  # their search does not know the radius
                    try:
                        row = measure(kind, keys, queries, radius, options.repeats)
                    except ImportError:
                        continue
                    rows.append({"peer": kind.name, "keys": name, "size": size, "radius": radius, **row})
                    print(line(rows[-1]), flush=True)
    return rows


HEADER = """| keys | entries | radius | index | batch query µs | single query µs | query-or-insert µs | build s | hits |
|---|---|---|---|---|---|---|---|---|"""


def line(row: Row) -> str:
    cells = [row["keys"], f"{row['size']:,}", f"{row['radius']:g}", row["peer"]]
    cells += [f"{row[name]:.3g}" for name in ("batch", "single", "query_or_insert", "build")]
    wrong = "" if row["agree"] == 1 else f" ({100 * (1 - row['agree']):.1f}% wrong)"
    return "| " + " | ".join([*cells, f"{row['hits']:.2f}{wrong}"]) + " |"


def whole_memory(size: int, state_dim: int) -> Row:
    """A full memory: learn a 100-step episode, recall 32×100 states, bytes an entry; the encoder timed apart."""
    rng = np.random.default_rng(0)
    memory = EpisodicMemory(state_dim=state_dim, capacity=size, radius=1.3e-3)

    def episode(steps: int) -> Any:
        states = rng.standard_normal((steps + 1, state_dim), np.float32)
        return SimpleNamespace(state=states, reward=rng.normal(size=steps), won=bool(rng.random() < 0.5))

    while len(memory) < size:
        memory.update([episode(2_000) for _ in range(10)])
    memory.reembed()
    fresh = [episode(100) for _ in range(60)]
    encoded = {id(e.state): memory.encode(e.state, np.arange(len(e.state))) for e in fresh}
    encode = memory.encode
    answers = iter([encoded[id(e.state)] for e in fresh])
    memory.encode = lambda states, times: next(answers)
    turn = iter(fresh)
    update = seconds(lambda: memory.update([next(turn)]), len(fresh))
    batch = memory.states(rng.integers(size, size=1_600))
    states = np.concatenate([batch, rng.standard_normal(batch.shape, np.float32)]).reshape(32, 100, -1)
    x = encode(states.reshape(3_200, -1), np.zeros(3_200, np.int32))
    memory.encode = lambda states, times: x
    recall = seconds(lambda: memory.recall(states, np.zeros((32, 100))), 20)
    encoding = seconds(lambda: encode(states.reshape(3_200, -1), np.zeros(3_200, np.int32)), 20)
    return {
        "entries": size,
        "update_100_steps_ms": update * 1e3,
        "recall_32x100_ms": recall * 1e3,
        "projection_32x100_ms": encoding * 1e3,
        "bytes_per_entry_beyond_state": memory.nbytes / size - 4 * state_dim,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--radii", type=float, nargs="+", default=[1.3e-5, 1.3e-3, 1.3e-2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers-on", nargs="+", default=["gauss", "clustered", "half near"])
    parser.add_argument("--graphs-up-to", type=int, default=100_000, help="largest size for HNSW peers")
    parser.add_argument("--recorded", help="an .npy file of (n, 4) keys")
    parser.add_argument("--state-dim", type=int, default=216)
    parser.add_argument("--json", help="write all figures here")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # peers are imported later
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n\n{HEADER}")
    rows = compare(options)
    memory = [whole_memory(size, options.state_dim) for size in options.sizes]
    print("\n" + json.dumps(memory, indent=2), f"\nload average {os.getloadavg()[0]:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"index": rows, "memory": memory}, indent=2))


if __name__ == "__main__":
    main()
