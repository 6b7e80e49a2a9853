"""Networks computed slowly and plainly from a state dict: NumPy, float64, one output pixel at a time."""

from __future__ import annotations

import numpy as np


def conv(x, weight, stride, groups=1):
    """(n, C, H, W) with (out, C / groups, k, k), padded by k // 2."""
    out, per_group, k, _ = weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)))
    rows = (padded.shape[2] - k) // stride + 1
    columns = (padded.shape[3] - k) // stride + 1
    result = np.zeros((len(x), out, rows, columns))
    for group in range(groups):
        inputs = slice(group * per_group, (group + 1) * per_group)
        outputs = slice(group * out // groups, (group + 1) * out // groups)
        for i in range(rows):
            for j in range(columns):
                window = padded[:, inputs, i * stride : i * stride + k, j * stride : j * stride + k]
                result[:, outputs, i, j] = np.tensordot(window, weight[outputs], axes=((1, 2, 3), (1, 2, 3)))
    return result


def norm(x, state, at):
    parts = ("weight", "bias", "running_mean", "running_var")
    gamma, beta, mean, variance = (state[f"{at}.{part}"].astype(np.float64)[:, None, None] for part in parts)
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta


def both(x, state, conv_at, norm_at, stride=1, groups=1):
    return norm(conv(x, state[f"{conv_at}.weight"].astype(np.float64), stride, groups), state, norm_at)


def relu(x):
    return np.maximum(x, 0)


def pool(x):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    rows, columns = (padded.shape[2] - 3) // 2 + 1, (padded.shape[3] - 3) // 2 + 1
    result = np.zeros((*x.shape[:2], rows, columns))
    for i in range(rows):
        for j in range(columns):
            result[:, :, i, j] = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(2, 3))
    return result


def resnet18(state, x, stages):
    x = pool(relu(both(x, state, "conv1", "bn1", 2)))
    for stage in range(1, stages + 1):
        for block in range(2):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = relu(both(x, state, f"{at}.conv1", f"{at}.bn1", stride))
            y = both(y, state, f"{at}.conv2", f"{at}.bn2")
            if stride == 2:
                x = both(x, state, f"{at}.downsample.0", f"{at}.downsample.1", 2)
            x = relu(x + y)
    return x


def resnet50_stage1(state, x):
    x = pool(relu(both(x, state, "conv1", "bn1", 2)))
    for block in range(3):
        at = f"layer1.{block}"
        y = relu(both(x, state, f"{at}.conv1", f"{at}.bn1"))
        y = relu(both(y, state, f"{at}.conv2", f"{at}.bn2"))
        y = both(y, state, f"{at}.conv3", f"{at}.bn3")
        if block == 0:
            x = both(x, state, f"{at}.downsample.0", f"{at}.downsample.1")
        x = relu(x + y)
    return x


def relu6(x):
    return np.clip(x, 0, 6)


def mobilenet_v2(state, x, last):
    """Up to `features.<last>`, last <= 6; the strides are spelled out."""
    x = relu6(both(x, state, "features.0.0", "features.0.1", 2))
    for number in range(1, last + 1):
        at, y = f"features.{number}.conv", x
        stride = {2: 2, 4: 2}.get(number, 1)
        first = 0
        if number > 1:
            y, first = relu6(both(y, state, f"{at}.0.0", f"{at}.0.1")), 1
        y = relu6(both(y, state, f"{at}.{first}.0", f"{at}.{first}.1", stride, y.shape[1]))
        y = both(y, state, f"{at}.{first + 1}", f"{at}.{first + 2}")
        x = x + y if number in (3, 5, 6) else y
    return x
