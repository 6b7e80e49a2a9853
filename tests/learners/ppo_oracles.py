"""MAPPO's update, written slowly and plainly in float64: an episode, a step, an agent at a time."""

from __future__ import annotations

import numpy as np

from . import oracles


def log_softmax(logits, avail):
    """Log-probabilities of the available actions; minus infinity elsewhere."""
    kept = logits[avail]
    result = np.full(len(logits), -np.inf)
    result[avail] = kept - kept.max() - np.log(np.exp(kept - kept.max()).sum())
    return result


def state_values(critic, states):
    """Normalised value of every state of an episode, (T+1, S) -> (T+1,)."""
    no_action = np.zeros((len(states) - 1, 1), int)
    return oracles.agent_q(critic, states[:, None], no_action, 1)[0][:, 0, 0]


def advantages(reward, terminated, value, gamma, lam):
    """Σ_k (γλ)^k δ_t+k by the definition, for one episode without padding."""
    steps = len(reward)
    deltas = [reward[t] + (0.0 if terminated[t] else gamma * value[t + 1]) - value[t] for t in range(steps)]
    return np.array([sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, steps)) for t in range(steps)])


def huber(error, delta):
    error = abs(error)
    return 0.5 * error**2 if error <= delta else delta * (error - 0.5 * delta)


def clip(x, low, high):
    return min(max(x, low), high)


def own_values(critic, obs):
    """Normalised value of what every agent saw, an agent at a time: (T+1, N, O) -> (T+1, N)."""
    no_action = np.zeros((len(obs) - 1, obs.shape[1]), int)
    wide = critic["params"]["encode"]["kernel"].shape[0] - obs.shape[2]  # how many numbers the agent's number takes
    rows = []
    for agent in range(obs.shape[1]):
        number = np.eye(obs.shape[1])[agent][:wide]
        seen = np.concatenate([obs[:, agent], np.tile(number, (len(obs), 1))], axis=1)
        rows.append(oracles.agent_q(critic, seen[:, None], no_action[:, :1], 1)[0][:, 0, 0])
    return np.stack(rows, axis=1)


def judge_own(params, seen, eps, gamma, lam):
    """As `judge`, for critics of the agents' own observations: everything is (T, N), rewards may be."""
    before = scale_of(seen)
    values = [own_values(params["critic"], ep.obs) for ep in eps]
    natural = [v * deviation(before) + before[1] for v in values]
    raw = []
    for ep, v in zip(eps, natural, strict=True):
        rewards = np.broadcast_to(ep.reward[:, None], v[1:].shape) if ep.reward.ndim == 1 else ep.reward
        agents = range(v.shape[1])
        raw.append(np.stack([advantages(rewards[:, i], ep.terminated, v[:, i], gamma, lam) for i in agents], axis=1))
    returns = [a + v[:-1] for a, v in zip(raw, natural, strict=True)]
    after = [*seen, *np.concatenate(returns).ravel()]
    chosen = [a[t, i] for a, ep in zip(raw, eps, strict=True) for t, i in np.argwhere(ep.avail[:-1].sum(-1) > 1)]
    standard = [(a - np.mean(chosen)) / (np.std(chosen) + 1e-5) for a in raw]
    _, mean, variance = scale_of(after)
    targets = [(g - mean) / np.sqrt(max(variance, 1e-2)) for g in returns]
    return [v[:-1] for v in values], targets, standard, after


def judge(params, seen, eps, gamma, lam):
    """Per episode: values then, normalised targets, standardised advantages; and all returns seen after it.

    `seen` holds all returns seen before.
    """
    before = scale_of(seen)
    values = [state_values(params["critic"], ep.state) for ep in eps]
    natural = [v * deviation(before) + before[1] for v in values]
    raw = [advantages(ep.reward, ep.terminated, v, gamma, lam) for ep, v in zip(eps, natural, strict=True)]
    returns = [a + v[:-1] for a, v in zip(raw, natural, strict=True)]
    after = [*seen, *np.concatenate(returns)]
    chosen = [a[t] for a, ep in zip(raw, eps, strict=True) for t in range(len(a)) for m in ep.avail[t] if m.sum() > 1]
    standard = [(a - np.mean(chosen)) / (np.std(chosen) + 1e-5) for a in raw]
    _, mean, variance = scale_of(after)
    targets = [(g - mean) / np.sqrt(max(variance, 1e-2)) for g in returns]
    return [v[:-1] for v in values], targets, standard, after


def scale_of(seen):
    """Number, mean and variance of all returns seen."""
    return (len(seen), np.mean(seen), np.var(seen)) if len(seen) else (0, 0.0, 1.0)


def deviation(scale):
    return np.sqrt(max(scale[2], 1e-2))


def losses(params, eps, judged, c, n_actions):
    """Policy loss, value loss, entropy, KL and share of clipped ratios. With own critics what is judged is (T, N)."""
    then, targets, standard = judged
    policy, value, entropy, kl, clipped = [], [], [], [], []
    for ep, v_then, g, adv in zip(eps, then, targets, standard, strict=True):
        logits = oracles.agent_q(params["agent"], ep.obs, ep.action, n_actions)[0]
        own = c.critic == "own"
        v = own_values(params["critic"], ep.obs) if own else state_values(params["critic"], ep.state)
        for t in range(len(ep.reward)):
            for now, was, aim in zip(*map(np.atleast_1d, (v[t], v_then[t], g[t])), strict=True):
                held = was + clip(now - was, -c.clip, c.clip)
                value.append(max(huber(now - aim, c.huber), huber(held - aim, c.huber)))
            for agent, avail in enumerate(ep.avail[t]):
                if avail.sum() == 1:
                    continue
                log_policy = log_softmax(logits[t, agent], avail)
                change = log_policy[ep.action[t, agent]] - ep.log_prob[t, agent]
                ratio = np.exp(change)
                gain = adv[t, agent] if own else adv[t]
                policy.append(-min(ratio * gain, clip(ratio, 1 - c.clip, 1 + c.clip) * gain))
                entropy.append(-sum(np.exp(x) * x for x in log_policy[avail]))
                kl.append(ratio - 1 - change)
                clipped.append(abs(ratio - 1) > c.clip)
    return {
        "policy_loss": np.mean(policy),
        "value_loss": np.mean(value),
        "entropy": np.mean(entropy),
        "kl": np.mean(kl),
        "ratio_clipped": np.mean(clipped),
    }
