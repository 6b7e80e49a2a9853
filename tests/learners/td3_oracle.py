"""One update of TD3, written slowly and plainly in float64: a step at a time, gradients by central differences."""

from __future__ import annotations

import jax
import numpy as np


def layers(params):
    """(kernel, bias) of the three linear layers."""
    return [(params[f"Linear_{i}"]["kernel"], params[f"Linear_{i}"]["bias"]) for i in range(3)]


def network(params, x):
    for kernel, bias in layers(params)[:2]:
        x = np.maximum(x @ kernel + bias, 0.0)
    kernel, bias = layers(params)[2]
    return x @ kernel + bias


def act(actor, obs):
    return np.tanh(network(actor["params"]["Trunk_0"], obs))


def judge(critic, obs, action):
    """Both critics' values of one action."""
    x = np.concatenate([obs, action])
    return [network(critic["params"][name], x)[0] for name in ("first", "second")]


def targets(target, steps, noises, td3, gamma):
    """y of every step."""
    found = []
    for step, noise in zip(steps, noises, strict=True):
        noise = np.clip(td3.smoothing * noise, -td3.smoothing_clip, td3.smoothing_clip)
        action = np.clip(act(target.actor, step.next_obs) + noise, -1, 1)
        value = min(judge(target.critic, step.next_obs, action))
        found.append(step.reward + (0.0 if step.terminated else gamma * value))
    return found


def critic_loss(critic, steps, ys):
    errors = [np.subtract(judge(critic, step.obs, step.action), y) for step, y in zip(steps, ys, strict=True)]
    return sum(np.mean(np.square(error)) for error in np.transpose(errors))


def actor_loss(actor, critic, steps):
    return -np.mean([judge(critic, step.obs, act(actor, step.obs))[0] for step in steps])


def gradient(loss, tree, width=1e-6):
    """Central differences, one parameter after the other."""
    tree, found = (jax.tree.map(lambda x: np.array(x, np.float64), tree) for _ in range(2))  # copies

    def visit(values, out):
        for name, value in values.items():
            if isinstance(value, dict):
                visit(value, out[name])
                continue
            for place in np.ndindex(value.shape):
                kept = value[place]
                value[place] = kept + width
                above = loss(tree)
                value[place] = kept - width
                out[name][place] = (above - loss(tree)) / (2 * width)
                value[place] = kept

    visit(tree, found)
    return found
