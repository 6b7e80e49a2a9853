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


def bootstrap_values(params, target_params, mix, ep, double_q=True):
    """Q_tot⁻(s_t+1, a*) of every step. `mix(mixer, chosen, greedy, actions, state)` is the team's value."""
    n_actions = ep.avail.shape[-1]
    q = agent_q(params["agent"], ep.obs, ep.action, n_actions)[0]
    target_q = agent_q(target_params["agent"], ep.obs, ep.action, n_actions)[0]
    values = []
    for t in range(len(ep.reward)):
        chosen, greedy, actions = [], [], []
        for agent in range(ep.avail.shape[1]):
            avail = ep.avail[t + 1, agent]
            action = best_available((q if double_q else target_q)[t + 1, agent], avail)
            actions.append(action)
            chosen.append(target_q[t + 1, agent, action])
            greedy.append(max(target_q[t + 1, agent, a] for a in np.flatnonzero(avail)))
        values.append(mix(target_params["mixer"], np.array(chosen), np.array(greedy), actions, ep.state[t + 1]))
    return values


def td_targets(values, ep, gamma):
    """y_t of one episode from its bootstrap values; rewards and values may be those of each agent, (T, N)."""
    pairs = zip(np.float64(ep.reward), ep.terminated, values, strict=True)
    return [reward + gamma * np.where(terminated, 0.0, value) for reward, terminated, value in pairs]


def lambda_targets(values, ep, gamma, decay):
    """The λ-return of every step by its definition: n-step returns weighed (1 - λ) λ^(n-1), the last one λ^(n-1)."""
    steps, targets = len(ep.reward), []
    for t in range(steps):
        total, so_far = 0.0, 0.0
        for n in range(1, steps - t + 1):
            last = t + n - 1
            so_far = so_far + gamma ** (n - 1) * np.float64(ep.reward[last])
            n_step = so_far + gamma**n * np.where(ep.terminated[last], 0.0, values[last])
            total += decay ** (n - 1) * (1.0 if last == steps - 1 else 1 - decay) * n_step
        targets.append(total)
    return targets


def blended(one_step, rewards, gamma, decay):
    """λ-returns from the end of an episode to its start: one-step targets, and what really followed, in proportion."""
    targets = [one_step[-1]]
    for target, reward in zip(one_step[-2::-1], rewards[-2::-1], strict=True):
        targets.append((1 - decay) * target + decay * (reward + gamma * targets[-1]))
    return np.array(targets[::-1])


def taken_values(params, mix, ep):
    """Q_tot(s_t, a_t) of every step."""
    q = agent_q(params["agent"], ep.obs, ep.action, ep.avail.shape[-1])[0]
    values = []
    for t in range(len(ep.reward)):
        agents = range(ep.action.shape[1])
        chosen = np.array([q[t, agent, ep.action[t, agent]] for agent in agents])
        greedy = np.array([q[t, agent, best_available(q[t, agent], ep.avail[t, agent])] for agent in agents])
        values.append(mix(params["mixer"], chosen, greedy, list(ep.action[t]), ep.state[t]))
    return values


def sum_of_values(mixer, chosen, greedy, actions, state):
    """VDN."""
    return chosen.sum()


def td_loss(params, targets, mix, eps):
    """Mean squared error over all real steps of all episodes."""
    errors = [np.subtract(taken_values(params, mix, ep), ys) for ep, ys in zip(eps, targets, strict=True)]
    return np.mean(np.square(np.concatenate(errors)))


def curiosity_errors(predictor, slow, ep, factor):
    """mean_i ‖prediction - factor · slow Q‖ at the step after each."""
    n_actions = ep.avail.shape[-1]
    prediction = agent_q(predictor, ep.obs, ep.action, n_actions)[0]
    aim = factor * agent_q(slow, ep.obs, ep.action, n_actions)[0]
    errors = []
    for t in range(len(ep.reward)):
        differences = [prediction[t + 1, agent] - aim[t + 1, agent] for agent in range(ep.action.shape[1])]
        errors.append(np.mean([np.sqrt((d * d).sum()) for d in differences]))
    return errors


def prediction(predictor, features, agent=None):
    """CDS's predictor on one row; `agent` is a one-hot vector or None."""
    p, known = predictor["params"], [] if agent is None else [agent]
    x = np.concatenate([features, *known])
    x = np.maximum(x @ p["first"]["kernel"] + p["first"]["bias"], 0.0)
    x = np.concatenate([x, *known])
    x = np.maximum(x @ p["second"]["kernel"] + p["second"]["bias"], 0.0)
    return x @ p["out"]["kernel"] + p["out"]["bias"]


def diversity_row(ep, hidden, t, agent):
    """What the predictors read, the agent, and what they are after."""
    n_agents, n_actions = ep.avail.shape[1:]
    before = hidden[t - 1, agent] if t > 0 else np.zeros_like(hidden[0, agent])
    action = np.eye(n_actions)[ep.action[t, agent]]
    return np.concatenate([before, ep.obs[t, agent], action]), np.eye(n_agents)[agent], ep.obs[t + 1, agent]


def prediction_error(predictor, row, knows_agent):
    features, agent, after = row
    return np.square(prediction(predictor, features, agent if knows_agent else None) - after).sum()


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def diversity_rewards(predictors, agent_params, ep, beta, beta1, beta2):
    n_agents, n_actions = ep.avail.shape[1:]
    q, hidden, _ = agent_q(agent_params, ep.obs, ep.action, n_actions)
    rewards = []
    for t in range(len(ep.reward)):
        team = np.mean([softmax(q[t, agent]) for agent in range(n_agents)], axis=0)
        parts = []
        for agent in range(n_agents):
            row = diversity_row(ep, hidden, t, agent)
            log_q = -prediction_error(predictors["own"], row, True)
            log_p = -prediction_error(predictors["anyone"], row, False)
            own = softmax(beta1 * q[t, agent])
            parts.append(beta1 * log_q - log_p + beta2 * (own * np.log(own / team)).sum())
        rewards.append(beta * np.mean(parts))
    return rewards


def elliptical_bonuses(embeddings, ridge):
    covariance = ridge * np.eye(embeddings.shape[-1])
    bonuses = []
    for x in embeddings.astype(np.float64):
        bonuses.append(x @ np.linalg.inv(covariance) @ x)
        covariance += np.outer(x, x)
    return bonuses


def incentives(recall, values, ep, gamma):
    """γ · ratio · max(0, H - V) where the next state is known and not terminal."""
    bonuses = []
    for t, value in enumerate(values):
        counts = recall.found[t] and not ep.terminated[t]
        bonuses.append(gamma * recall.ratio[t] * max(0.0, recall.best_return[t] - value) if counts else 0.0)
    return bonuses


def control_losses(recall, taken, ep, gamma, weight):
    """λ (r + γ H - Q)² where the next state is known; a terminal one has H = 0."""
    losses = []
    for t, q in enumerate(taken):
        following = 0.0 if ep.terminated[t] else recall.best_return[t]
        losses.append(weight * (ep.reward[t] + gamma * following - q) ** 2 if recall.found[t] else 0.0)
    return losses


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


def adam(params, grads, first, second, step, rate, eps=1e-8):
    """`torch.optim.Adam` at its `step`-th step, counted from 1; returns parameters and both moments."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

    def moved(p, m, v):
        return p - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + eps)

    return jax.tree.map(moved, params, first, second), first, second


def zeros(tree):
    return jax.tree.map(np.zeros_like, tree)
