"""One update, written slowly and plainly in float64: an episode, a step, an agent at a time.

Gradients are central differences of the loss, optimisers are PyTorch's formulas, so nothing here shares a line or an
idea with the package. Parameters are the package's trees with NumPy leaves.
"""

from __future__ import annotations

import jax
import numpy as np


def as_float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gru_cell(x, h, w_input, b_input, w_hidden, b_hidden):
    """`torch.nn.GRUCell`: gates in the order reset, update, new."""
    size = len(h)
    gi, gh = x @ w_input + b_input, h @ w_hidden + b_hidden
    r = sigmoid(gi[:size] + gh[:size])
    z = sigmoid(gi[size : 2 * size] + gh[size : 2 * size])
    n = np.tanh(gi[2 * size :] + r * gh[2 * size :])
    return (1 - z) * n + z * h


def agent_q(params, obs, action, n_actions):
    """Q of one episode: obs (T+1, N, O), action (T, N) -> (T+1, N, A), hidden (T+1, N, H), own heads' part of Q."""
    p = params["params"]
    steps, n_agents = obs.shape[:2]
    size = len(p["recurrent_kernel"])
    q = np.zeros((steps, n_agents, n_actions))
    hidden, own = np.zeros((steps, n_agents, size)), np.zeros_like(q)
    for agent in range(n_agents):
        h = np.zeros(size)
        for t in range(steps):
            last = np.zeros(n_actions)
            if t > 0:
                last[action[t - 1, agent]] = 1.0
            inputs = np.concatenate([obs[t, agent], last, np.eye(n_agents)[agent]])
            inputs = inputs[: len(p["encode"]["kernel"])]  # without the agent's number where it is switched off
            x = np.maximum(inputs @ p["encode"]["kernel"] + p["encode"]["bias"], 0.0)
            gates = p["gates"]["kernel"], p["gates"]["bias"], p["recurrent_kernel"], p["recurrent_bias"]
            h = gru_cell(x, h, *gates)
            hidden[t, agent] = h
            q[t, agent] = h @ p["head"]["kernel"] + p["head"]["bias"]
            if "own_kernel" in p:
                own[t, agent] = h @ p["own_kernel"][agent] + p["own_bias"][agent]
    return q + own, hidden, own


def best_available(q, avail):
    """The available action of largest Q."""
    return max(np.flatnonzero(avail), key=lambda action: q[action])


def episode(batch, row):
    """Row `row` of a batch, without its padding."""
    steps = int(batch.filled[row].sum())
    ends = {"obs": steps + 1, "state": steps + 1, "avail": steps + 1}
    return type(batch)(*(value[row, : ends.get(name, steps)] for name, value in batch._asdict().items()))


def episodes(batch):
    return [episode(batch, row) for row in range(len(batch.filled))]


def td_targets(params, target_params, mix, ep, gamma, double_q=True, extra=None):
    """y_t of one episode. `mix(mixer, chosen, greedy, actions, state)` is the team's value."""
    n_actions = ep.avail.shape[-1]
    q = agent_q(params["agent"], ep.obs, ep.action, n_actions)[0]
    target_q = agent_q(target_params["agent"], ep.obs, ep.action, n_actions)[0]
    targets = []
    for t in range(len(ep.reward)):
        y = float(ep.reward[t]) + (0.0 if extra is None else extra[t])
        if not ep.terminated[t]:
            chosen, greedy, actions = [], [], []
            for agent in range(ep.avail.shape[1]):
                avail = ep.avail[t + 1, agent]
                chooser = q if double_q else target_q
                action = best_available(chooser[t + 1, agent], avail)
                actions.append(action)
                chosen.append(target_q[t + 1, agent, action])
                greedy.append(max(target_q[t + 1, agent, a] for a in np.flatnonzero(avail)))
            y += gamma * mix(target_params["mixer"], np.array(chosen), np.array(greedy), actions, ep.state[t + 1])
        targets.append(y)
    return targets


def td_loss(params, targets, mix, eps):
    """Mean squared error over all real steps of all episodes."""
    errors = []
    for ep, ys in zip(eps, targets, strict=True):
        q = agent_q(params["agent"], ep.obs, ep.action, ep.avail.shape[-1])[0]
        for t, y in enumerate(ys):
            agents = range(ep.action.shape[1])
            chosen = np.array([q[t, agent, ep.action[t, agent]] for agent in agents])
            greedy = np.array([q[t, agent, best_available(q[t, agent], ep.avail[t, agent])] for agent in agents])
            errors.append(mix(params["mixer"], chosen, greedy, list(ep.action[t]), ep.state[t]) - y)
    return np.mean(np.square(errors))


def gradient(function, params, epsilon=1e-5):
    """Central differences by every number in a tree."""
    leaves, tree = jax.tree.flatten(params)
    grads = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, grad in zip(leaves, grads, strict=True):
        for place in np.ndindex(leaf.shape):
            kept = leaf[place]
            leaf[place] = kept + epsilon
            above = function(jax.tree.unflatten(tree, leaves))
            leaf[place] = kept - epsilon
            below = function(jax.tree.unflatten(tree, leaves))
            leaf[place] = kept
            grad[place] = (above - below) / (2 * epsilon)
    return jax.tree.unflatten(tree, grads)


def norm(grads):
    return np.sqrt(sum(np.square(g).sum() for g in jax.tree.leaves(grads)))


def clip(grads, max_norm):
    """`torch.nn.utils.clip_grad_norm_`."""
    coefficient = min(1.0, max_norm / (norm(grads) + 1e-6))
    return jax.tree.map(lambda g: g * coefficient, grads)


def rmsprop(params, grads, square, rate, alpha, eps):
    """`torch.optim.RMSprop`; returns parameters and running squares."""
    square = jax.tree.map(lambda s, g: alpha * s + (1 - alpha) * g * g, square, grads)
    params = jax.tree.map(lambda p, g, s: p - rate * g / (np.sqrt(s) + eps), params, grads, square)
    return params, square


def adam(params, grads, first, second, step, rate):
    """`torch.optim.Adam` at its `step`-th step, counted from 1; returns parameters and both moments."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

    def moved(p, m, v):
        return p - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)

    return jax.tree.map(moved, params, first, second), first, second


def zeros(tree):
    return jax.tree.map(np.zeros_like, tree)
