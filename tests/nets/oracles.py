"""Mixers written slowly and plainly: one sample, one head, one kernel, one agent at a time, in float64.

`qmix_layers` and `qplex_layers` first take the package's merged layers apart into the reference's small ones.
"""

from __future__ import annotations

import numpy as np


def linear(layer, x):
    kernel, bias = layer
    return x @ kernel + bias


def chain(layers, x):
    """Linear layers with ReLU between them."""
    for layer in layers[:-1]:
        x = np.maximum(linear(layer, x), 0.0)
    return linear(layers[-1], x)


def two_layers(first, second, x):
    return linear(second, np.maximum(linear(first, x), 0.0))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def qmix(layers, chosen, state):
    n_agents, embed = len(chosen), len(layers["bias"][1])
    w1 = np.abs(two_layers(*layers["w1"], state)).reshape(n_agents, embed)
    w2 = np.abs(two_layers(*layers["w2"], state))
    hidden = linear(layers["bias"], state)
    for agent in range(n_agents):
        hidden = hidden + chosen[agent] * w1[agent]
    hidden = np.array([h if h > 0 else np.exp(h) - 1 for h in hidden])
    return sum(hidden * w2) + two_layers(*layers["value"], state)[0]


def qplex(layers, chosen, greedy, onehot, state, *, unit_dim, coefficient=0.001):
    n_agents = len(chosen)
    embed = layers["query"][0][1].shape[1]

    weight = np.zeros(n_agents)
    squared_logits = []
    for head, ((first, to_query), to_key) in enumerate(zip(layers["query"], layers["key"], strict=True)):
        query = np.maximum(linear(first, state), 0.0) @ to_query
        logits = []
        for agent in range(n_agents):
            features = state[agent * unit_dim : (agent + 1) * unit_dim]
            if len(to_key) == unit_dim + 1:  # nonlinear
                features = np.append(features, chosen[agent])
            logits.append(query @ (features @ to_key))
        attention = softmax(np.array(logits) / np.sqrt(embed))
        if layers["head_weight"] is not None:
            attention = attention * abs(two_layers(*layers["head_weight"], state)[head])
        weight += attention
        squared_logits.extend(np.square(logits))
    weight += 1e-10
    value = two_layers(*layers["value"], state)[0]

    importance = np.zeros(n_agents)
    state_action = np.concatenate([state, onehot.reshape(-1)])
    for key, agents, action in layers["kernels"]:
        for agent in range(n_agents):
            strength = abs(chain(key, state)[0]) + 1e-10
            gate = sigmoid(chain(agents, state)[agent]) * sigmoid(chain(action, state_action)[agent])
            importance[agent] += strength * gate

    v_tot, a_tot = 0.0, 0.0
    for agent in range(n_agents):
        q = weight[agent] * chosen[agent] + value / n_agents
        best = weight[agent] * greedy[agent] + value / n_agents
        v_tot += q
        a_tot += (importance[agent] - 1.0) * (q - best)
    return v_tot + a_tot, coefficient * np.mean(squared_logits)


def qmix_layers(params):
    p = _float64(params["params"])
    hyper, embed = len(p["w1"]["kernel"]), len(p["w2"]["bias"])
    w1, w2, bias, value = _take_apart(p["from_state"], [hyper, hyper, embed, embed])
    return {
        "w1": (w1, _pair(p["w1"])),
        "w2": (w2, _pair(p["w2"])),
        "bias": bias,
        "value": (value, _pair(p["value"])),
    }


def qplex_layers(params, n_agents):
    p = _float64(params["params"])
    heads, hyper, embed = p["query"].shape
    depth = 1 + sum(name.startswith("key_") for name in p)
    kernels = len(p[f"key_{depth}" if depth > 1 else "action"]["bias"]) // (1 if depth > 1 else n_agents)
    weighted = "head_weight" in p
    key_width, agents_width = (kernels, kernels * n_agents) if depth == 1 else (hyper, hyper)
    parts = _take_apart(p["from_state"], [hyper] * heads + [embed, key_width, agents_width] + [hyper] * weighted)

    def per_kernel(first, name, width):
        """Every kernel's network as a list of layers; only the last one differs from kernel to kernel."""
        stack = [first] + [_pair(p[f"{name}_{layer}"]) for layer in range(2, depth + 1)]
        last = dict(zip(("kernel", "bias"), stack[-1], strict=True))
        return [[*stack[:-1], part] for part in _take_apart(last, [width] * kernels)]

    key = per_kernel(parts[heads + 1], "key", 1)
    agents = per_kernel(parts[heads + 2], "agents", n_agents)
    action = per_kernel(_pair(p["action"]), "action", n_agents)
    return {
        "query": list(zip(parts[:heads], p["query"], strict=True)),
        "key": list(p["key"]),
        "value": (parts[heads], _pair(p["value"])),
        "kernels": list(zip(key, agents, action, strict=True)),
        "head_weight": (parts[-1], _pair(p["head_weight"])) if weighted else None,
    }


def _float64(tree):
    if isinstance(tree, dict):
        return {name: _float64(branch) for name, branch in tree.items()}
    return np.asarray(tree, np.float64)


def _pair(layer):
    return layer["kernel"], layer["bias"]


def _take_apart(layer, widths):
    assert sum(widths) == len(layer["bias"])
    cuts = np.cumsum(widths)[:-1]
    kernels, biases = np.split(layer["kernel"], cuts, axis=1), np.split(layer["bias"], cuts)
    return list(zip(kernels, biases, strict=True))
