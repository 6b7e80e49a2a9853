"""Use an exported team without EMU: plain NumPy, PyTorch where it is installed, or ONNX.

    emu export-team runs/smac-3m/emu_qplex-seed1 my_team --onnx
    python examples/use_exported_team.py my_team

loads `team.safetensors` and `team.json` and lets the agents act on made-up observations, once with each library that
is there. Copy what you need: nothing here imports EMU or JAX. Recurrent agents only (VDN, QMIX, QPLEX, EMC, CDS, EMU on
them, MAPPO).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]  # obs (N, O), avail (N, A) -> actions (N,)


class ExportedTeam:
    """The files of a team, and what all libraries share: the inputs of the network, and the greedy choice."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        about = json.loads((self.folder / "team.json").read_text())
        if about["network"]["kind"] != "recurrent":
            raise SystemExit("This example is about recurrent agents; yours are of another kind.")
        self.network, task = about["network"], about["task"]
        self.agents, self.actions, self.obs_dim = task["n_agents"], task["n_actions"], task["obs_dim"]
        stored = load_file(self.folder / "team.safetensors")
        self.weights = {name.removeprefix("params."): array for name, array in stored.items()}

    def inputs(self, obs: np.ndarray, last_action: np.ndarray) -> np.ndarray:
        """[observation, last action, agent number] as far as the network takes them, a row for every agent."""
        parts = {"obs": obs, "last_action": last_action, "agent_id": np.eye(self.agents)}
        return np.concatenate([parts[name] for name in self.network["inputs"]], axis=-1).astype(np.float32)

    def greedy(self, q: np.ndarray, avail: np.ndarray) -> np.ndarray:
        return np.where(avail, q, -np.inf).argmax(axis=-1)

    def begin(self) -> tuple[np.ndarray, np.ndarray]:
        """What the agents remember at the start of an episode: a hidden state, and no last action."""
        return np.zeros((self.agents, self.network["hidden"]), np.float32), np.zeros((self.agents, self.actions))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def with_numpy(team: ExportedTeam) -> Act:
    """A function that acts through one episode."""
    w, (hidden, last_action) = team.weights, team.begin()

    def act(obs: np.ndarray, avail: np.ndarray) -> np.ndarray:
        nonlocal hidden, last_action
        x = np.maximum(team.inputs(obs, last_action) @ w["encode.kernel"] + w["encode.bias"], 0)
        from_x = np.split(x @ w["gates.kernel"] + w["gates.bias"], 3, axis=-1)
        from_h = np.split(hidden @ w["recurrent_kernel"] + w["recurrent_bias"], 3, axis=-1)
        reset, update = sigmoid(from_x[0] + from_h[0]), sigmoid(from_x[1] + from_h[1])
        new = np.tanh(from_x[2] + reset * from_h[2])
        hidden = new + update * (hidden - new)
        q = hidden @ w["head.kernel"] + w["head.bias"]
        if team.network["own_heads"]:
            q = q + np.einsum("nh,nha->na", hidden, w["own_kernel"]) + w["own_bias"]
        actions = team.greedy(q, avail)
        last_action = np.eye(team.actions)[actions]
        return actions

    return act


def with_torch(team: ExportedTeam) -> Act:
    """The same with PyTorch's own layers, into which the weights go as they are, transposed."""
    import torch  # pyright: ignore[reportMissingImports]

    w = {name: torch.from_numpy(array) for name, array in team.weights.items()}
    size = team.network["hidden"]
    encode, head = torch.nn.Linear(*w["encode.kernel"].shape), torch.nn.Linear(*w["head.kernel"].shape)
    cell = torch.nn.GRUCell(size, size)
    encode.load_state_dict({"weight": w["encode.kernel"].T, "bias": w["encode.bias"]})
    head.load_state_dict({"weight": w["head.kernel"].T, "bias": w["head.bias"]})
    cell.load_state_dict(
        {
            "weight_ih": w["gates.kernel"].T,
            "bias_ih": w["gates.bias"],
            "weight_hh": w["recurrent_kernel"].T,
            "bias_hh": w["recurrent_bias"],
        }
    )
    start, last_action = team.begin()
    hidden = torch.from_numpy(start)

    @torch.no_grad()
    def act(obs: np.ndarray, avail: np.ndarray) -> np.ndarray:
        nonlocal hidden, last_action
        hidden = cell(torch.relu(encode(torch.from_numpy(team.inputs(obs, last_action)))), hidden)
        q = head(hidden)
        if team.network["own_heads"]:
            q = q + torch.einsum("nh,nha->na", hidden, w["own_kernel"]) + w["own_bias"]
        actions = team.greedy(q.numpy(), avail)
        last_action = np.eye(team.actions)[actions]
        return actions

    return act


def with_onnx(team: ExportedTeam) -> Act:
    """The same with the graph in `team.onnx`; onnxruntime runs it faster than this reference of the package onnx."""
    from onnx.reference import ReferenceEvaluator

    graph = ReferenceEvaluator(str(team.folder / "team.onnx"))
    hidden, last_action = team.begin()
    takes_last_action = "last_action" in team.network["inputs"]

    def act(obs: np.ndarray, avail: np.ndarray) -> np.ndarray:
        nonlocal hidden, last_action
        given = {"obs": obs[None].astype(np.float32), "hidden": hidden[None]}
        if takes_last_action:
            given["last_action"] = last_action[None].astype(np.float32)
        q, following = (np.asarray(output) for output in graph.run(["q", "next_hidden"], given))
        hidden = following[0]
        actions = team.greedy(q[0], avail)
        last_action = np.eye(team.actions)[actions]
        return actions

    return act


def main(folder: str) -> None:
    team = ExportedTeam(folder)
    ways: dict[str, Callable[[ExportedTeam], Act]] = {"numpy": with_numpy}
    if importlib.util.find_spec("torch"):
        ways["torch"] = with_torch
    if importlib.util.find_spec("onnx") and (team.folder / "team.onnx").exists():
        ways["onnx"] = with_onnx
    shown = np.random.default_rng(0).normal(size=(5, team.agents, team.obs_dim))
    for name, way in ways.items():
        act = way(team)
        actions = [act(obs, np.ones((team.agents, team.actions), bool)).tolist() for obs in shown]
        print(f"{name:6}", actions)


if __name__ == "__main__":
    main(*sys.argv[1:2])
