"""A trained team in a folder of its own, which holds nothing of the run it came from.

    my_team/
      team.safetensors     the parameters that acting needs, by name
      team.json            the shapes of the task, the layers of the network, the settings of the run
      team.onnx            the network as ONNX, where it was asked for (`emu.run.onnx_graph`)

All files can be read without this package: `examples/use_exported_team.py` acts with plain NumPy or PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import emu
from emu.config import Config, from_dict, to_dict
from emu.errors import CheckpointError, EmuError
from emu.files import read_object, replace_bytes, replace_json, writing
from emu.run.onnx_graph import onnx_bytes
from emu.run.record import Record
from emu.run.trees import SUFFIX, load_tree, named_leaves, save_tree
from emu.types import PyTree

if TYPE_CHECKING:
    from emu.learners.base import Learner
    from emu.run.team import Team

FORMAT = 1
PARAMETERS, DESCRIPTION, GRAPH = f"team{SUFFIX}", "team.json", "team.onnx"


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an exported team."""
    return (folder / DESCRIPTION).exists()


def export_team(team: Team, folder: Path, onnx: bool = False) -> Path:
    """Write a team into a folder that is new, empty, or holds an exported team, which is replaced."""
    network = describe_network(team.learner, team.policy)
    graph = onnx_bytes(network, named_leaves(team.policy), team.env.spec) if onnx else None
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not is_exported(folder))):
        raise EmuError(f"{folder} already holds something else. Choose another folder for the team.")
    spec = team.env.spec
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_tree(folder / PARAMETERS, team.policy)
    shapes = {name: getattr(spec, name) for name in ("n_agents", "n_actions", "obs_dim", "action_dim", "stack")}
    description = {
        "format": FORMAT,
        "emu": emu.__version__,
        "algo": team.config.algo,
        "env": {"name": team.config.env, "version": spec.version, "arguments": team.config.env_args},
        "step": team.step,
        "evaluation": team.evaluation,
        "task": shapes,
        "network": network,
        "config": to_dict(team.config),
    }
    with writing(folder):
        (folder / GRAPH).unlink(missing_ok=True)
        if graph is not None:
            replace_bytes(folder / GRAPH, graph)
        replace_json(folder / DESCRIPTION, description, indent=2)
    return folder


def describe_network(learner: Learner, policy: PyTree) -> dict[str, Any]:
    """The layers that acting runs through; "other" for networks whose parameters alone say too little."""
    from emu.learners.dqn import DQNLearner
    from emu.learners.td3 import TD3Learner
    from emu.nets.agents import RecurrentAgent
    from emu.nets.qnets import VectorQ

    agent = getattr(learner, "agent", None)
    if isinstance(agent, RecurrentAgent):
        inputs = ["obs", *(["last_action"] if agent.last_action else []), *(["agent_id"] if agent.agent_id else [])]
        return {"kind": "recurrent", "inputs": inputs, "hidden": agent.hidden, "own_heads": agent.own_heads}
    layers = sorted(name.removesuffix(".kernel") for name in named_leaves(policy) if name.endswith(".kernel"))
    if isinstance(learner, TD3Learner):
        return {"kind": "feedforward", "layers": layers, "output": "tanh"}
    if isinstance(learner, DQNLearner) and isinstance(learner.net, VectorQ):
        return {"kind": "feedforward", "layers": layers, "output": "q"}
    return {"kind": "other"}


def read_description(folder: Path) -> dict[str, Any]:
    """What `team.json` says; refused if it is of another format."""
    content = read_object(folder / DESCRIPTION)
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder / DESCRIPTION} has format {content.get('format')!r}; this version of emu reads {FORMAT}. "
            "Export the team again."
        )
    return content


def read_exported_config(folder: Path) -> Config:
    content = read_description(folder)
    try:
        return from_dict(content.get("config", {}))
    except EmuError as error:
        raise EmuError(f"{folder / DESCRIPTION} cannot be used: {error}") from error


def load_exported(folder: Path, like: PyTree) -> tuple[PyTree, dict[str, float]]:
    """The parameters and the evaluation they were the best in; its `step` is always there."""
    record = Record(read_description(folder), str(folder / DESCRIPTION))
    evaluation = record.record("evaluation").values()
    return load_tree(folder / PARAMETERS, like), {**evaluation, "step": record.whole("step")}
