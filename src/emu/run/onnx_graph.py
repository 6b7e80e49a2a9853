"""The network of a team as an ONNX graph, written by hand: a few products, sums and activations.

    recurrent      obs (E, N, O), last_action (E, N, A) one-hot, hidden (E, N, H)  ->  q (E, N, A), next_hidden
    feedforward    obs (E, N, stack * O)                                           ->  q (E, N, A) or action (E, N, D)

Zeros are the last action and the hidden state of an episode's beginning. A greedy action is the largest q among the
available ones. E is free; the number of agents is fixed, for the one-hot numbers of the agents are added to a bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.envs.spec import EnvSpec
from emu.errors import EmuError

OPSET = 18
Parameters = dict[str, np.ndarray]


def onnx_bytes(network: dict[str, Any], parameters: Parameters, spec: EnvSpec) -> bytes:
    """The graph of a network, as `emu.run.exported` describes it, in ONNX's format."""
    try:
        import onnx
    except ImportError as error:
        raise EmuError("ONNX needs the package onnx: pip install 'emu-marl[onnx]'.") from error
    if network["kind"] not in ("recurrent", "feedforward"):
        raise EmuError("Only recurrent agents and networks on vectors can be written as ONNX; leave out onnx.")
    graph = Graph()
    if network["kind"] == "recurrent":
        inputs, outputs = recurrent(graph, network, parameters, spec)
    else:
        inputs, outputs = feedforward(graph, network, parameters, spec)
    helper = onnx.helper

    def described(name: str, width: int) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["environments", spec.n_agents, width])

    made = helper.make_graph(
        [helper.make_node(kind, ins, [out], **attributes) for kind, ins, out, attributes in graph.nodes],
        "emu_team",
        [described(name, width) for name, width in inputs.items()],
        [described(name, width) for name, width in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model = helper.make_model(made, producer_name="emu", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


class Graph:
    """Nodes and constants as they are added; values go by their names."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), out, attributes))
        return out

    def constant(self, name: str, array: Any) -> str:
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def linear(self, x: str, name: str, kernel: np.ndarray, bias: np.ndarray, out: str = "") -> str:
        product = self.add("MatMul", x, self.constant(f"{name}.kernel", kernel))
        return self.add("Add", product, self.constant(f"{name}.bias", bias), out=out)

    def part(self, x: str, start: int, stop: int) -> str:
        """A slice of the last axis."""
        bounds = [self.constant(f"at_{value}", np.array([value], np.int64)) for value in (start, stop, -1)]
        return self.add("Slice", x, *bounds)


def recurrent(
    graph: Graph, network: dict[str, Any], parameters: Parameters, spec: EnvSpec
) -> tuple[dict[str, int], dict[str, int]]:
    """[observation, last action, agent number] -> ReLU -> GRU -> q."""
    of = {name.removeprefix("params."): array for name, array in parameters.items()}
    size, n = network["hidden"], spec.n_agents
    inputs = {"obs": spec.obs_dim}
    kernel, bias = of["encode.kernel"], of["encode.bias"]
    summands = [graph.add("MatMul", "obs", graph.constant("encode.obs", kernel[: spec.obs_dim]))]
    rest = kernel[spec.obs_dim :]
    if "last_action" in network["inputs"]:
        inputs["last_action"] = spec.n_actions
        summands.append(graph.add("MatMul", "last_action", graph.constant("encode.action", rest[: spec.n_actions])))
        rest = rest[spec.n_actions :]
    own_bias = bias + rest if "agent_id" in network["inputs"] else np.broadcast_to(bias, (n, size))  # (N, H)
    summands.append(graph.constant("encode.bias", own_bias))
    encoded = summands[0]
    for summand in summands[1:]:
        encoded = graph.add("Add", encoded, summand)
    encoded = graph.add("Relu", encoded)

    hidden = gru(graph, encoded, of, size)
    q = graph.linear(hidden, "head", of["head.kernel"], of["head.bias"], out="" if network["own_heads"] else "q")
    if network["own_heads"]:
        last = graph.constant("before_last", np.array([-2], np.int64))
        rows = graph.add("Unsqueeze", hidden, last)  # (E, N, 1, H)
        own = graph.add("MatMul", rows, graph.constant("own.kernel", of["own_kernel"]))  # (N, H, A)
        own = graph.add("Add", graph.add("Squeeze", own, last), graph.constant("own.bias", of["own_bias"]))
        graph.add("Add", q, own, out="q")
    return {**inputs, "hidden": size}, {"q": spec.n_actions, "next_hidden": size}


def gru(graph: Graph, x: str, of: Parameters, size: int) -> str:
    """PyTorch's cell: gates are reset, update, candidate; next = new + update * (hidden - new)."""
    from_x = graph.linear(x, "gates", of["gates.kernel"], of["gates.bias"])
    from_h = graph.linear("hidden", "recurrent", of["recurrent_kernel"], of["recurrent_bias"])
    both = [graph.part(gates, 0, 2 * size) for gates in (from_x, from_h)]
    opened = graph.add("Sigmoid", graph.add("Add", *both))
    reset, update = graph.part(opened, 0, size), graph.part(opened, size, 2 * size)
    candidate_x, candidate_h = (graph.part(gates, 2 * size, 3 * size) for gates in (from_x, from_h))
    new = graph.add("Tanh", graph.add("Add", candidate_x, graph.add("Mul", reset, candidate_h)))
    kept = graph.add("Mul", update, graph.add("Sub", "hidden", new))
    return graph.add("Add", new, kept, out="next_hidden")


def feedforward(
    graph: Graph, network: dict[str, Any], parameters: Parameters, spec: EnvSpec
) -> tuple[dict[str, int], dict[str, int]]:
    """Linear layers with ReLU between them; actions end in tanh."""
    *inner, last = network["layers"]
    continuous = network["output"] == "tanh"
    x = "obs"
    for name in inner:
        x = graph.add("Relu", graph.linear(x, name, parameters[f"{name}.kernel"], parameters[f"{name}.bias"]))
    weights = parameters[f"{last}.kernel"], parameters[f"{last}.bias"]
    x = graph.linear(x, last, *weights, out="" if continuous else "q")
    if continuous:
        graph.add("Tanh", x, out="action")
        return {"obs": spec.obs_dim}, {"action": spec.action_dim}
    return {"obs": spec.stack * spec.obs_dim}, {"q": spec.n_actions}
