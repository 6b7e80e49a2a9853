"""A value per row of the paper: what each algorithm is, what each task changes, and what a variant changes on top.

An algorithm is a difference to its neighbour; a task adds its own schedule; a pair of both has the last word. A variant
is a word behind the name (`emu_qplex+fast`): it is part of the algorithm's name in folders, tables and legends.
Keys are dotted paths into `Config`.
"""

from __future__ import annotations

import fnmatch
from typing import Any, NamedTuple

from emu.config import Config, from_dict, replace, to_dict
from emu.errors import ConfigError, did_you_mean

Changes = dict[str, Any]


class Algorithm(NamedTuple):
    summary: str
    base: str | None  # the neighbour it builds on
    changes: Changes


_INCENTIVE = {"memory.use": "incentive"}
_CONTROL = {"memory.use": "control"}
_RANDOM = {"memory.embedder.kind": "random"}

ALGORITHMS: dict[str, Algorithm] = {
    "iql": Algorithm("every agent learns by itself (Tan, 1993; Tampuu et al., 2017)", None, {"mixer.kind": "none"}),
    "vdn": Algorithm("sum of the agents' values (Sunehag et al., 2018)", None, {"mixer.kind": "vdn"}),
    "qmix": Algorithm("monotonic mixing by hypernetworks (Rashid et al., 2018)", None, {"mixer.kind": "qmix"}),
    "qplex": Algorithm("duplex dueling mixing (Wang et al., 2021)", None, {"mixer.kind": "qplex"}),
    "emc": Algorithm(
        "curiosity and conventional episodic control (Zheng et al., 2021)",
        "qplex",
        {"curiosity.scale": 0.001, **_CONTROL, **_RANDOM},
    ),
    "cds": Algorithm(
        "own heads and a reward for being different (Li et al., 2021)",
        "qplex",
        {"agent.own_heads": True, "agent.agent_id": False, "diversity.beta": 0.05},
    ),
    "emu_vdn": Algorithm("VDN with the episodic incentive", "vdn", _INCENTIVE),
    "emu_qmix": Algorithm("QMIX with the episodic incentive", "qmix", _INCENTIVE),
    "emu_qplex": Algorithm(
        "EMU on QPLEX: curiosity and the episodic incentive (Na et al., 2024)",
        "qplex",
        {"curiosity.scale": 0.001, **_INCENTIVE},
    ),
    "emu_cds": Algorithm("EMU on CDS (Na et al., 2024)", "cds", _INCENTIVE),
    "no_ei": Algorithm("ablation of emu_qplex: conventional control for the incentive", "emu_qplex", _CONTROL),
    "no_se": Algorithm("ablation of emu_qplex: random projection for dCAE", "emu_qplex", _RANDOM),
    "no_ei_no_se": Algorithm("ablation of emu_qplex: both", "no_ei", _RANDOM),
    "cds_no_ei": Algorithm("ablation of emu_cds: conventional control for the incentive", "emu_cds", _CONTROL),
    "cds_no_se": Algorithm("ablation of emu_cds: random projection for dCAE", "emu_cds", _RANDOM),
    "td3": Algorithm(
        "one agent, continuous actions: twin critics, delayed policy (Fujimoto et al., 2018)",
        None,
        {
            "learner.kind": "td3",
            "learner.learning_rate": 3e-4,
            "learner.batch_size": 256,
            "learner.updates_per_episode": 6,  # the paper's schedule; the usual one: 0, and updates_per_step 1
            "learner.updates_per_call": 6,
            "replay.unit": "steps",
            "rollout.random_steps": 25_000,
        },
    ),
    "emu_td3": Algorithm("TD3 with the episodic incentive (Na et al., 2024)", "td3", _INCENTIVE),
    "dqn": Algorithm(
        "one agent, discrete actions: Q-learning from single steps (Mnih et al., 2015)",
        None,
        {
            "learner.kind": "dqn",
            "learner.learning_rate": 1e-4,
            "learner.double_q": False,
            "learner.updates_per_episode": 0,
            "learner.updates_per_step": 0.25,
            "replay.unit": "steps",
            "rollout.random_steps": 2_000,
        },
    ),
    "emu_dqn": Algorithm("DQN with the episodic incentive (Na et al., 2024)", "dqn", _INCENTIVE),
    "qplex_e3b": Algorithm(
        "QPLEX with the elliptical bonus on dCAE embeddings (Henaff et al., 2022)", "qplex", {"elliptical.scale": 0.1}
    ),
    "mappo": Algorithm(
        "recurrent policies and a central value, trained by clipped steps (Yu et al., 2022)",
        None,
        {
            "learner.kind": "mappo",
            "rollout.epsilon_end": 1.0,  # actions are always drawn from the policy, tests aside
        },
    ),
    "ippo": Algorithm(
        "MAPPO with a value for every agent of what it saw itself (de Witt et al., 2020)",
        "mappo",
        {"ppo.critic": "own"},
    ),
}

ALIASES = {"emu": "emu_qplex"}

SUPER_HARD = ("MMM2", "6h_vs_8z", "3s5z_vs_3s6z", "corridor")

# Settings of a task, whatever the algorithm: (pattern of the environment's name, changes). Later rows win.
TASKS: list[tuple[str, Changes]] = [
    (
        "matrix/*",
        {
            "steps": 20_000,
            "rollout.chunk": 8,
            "rollout.epsilon_end": 1.0,
            "mixer.importance_layers": 3,  # with one layer QPLEX hovers between the two equilibria
            "replay.episodes": 500,
            "learner.updates_per_call": 8,
            "memory.embedder.interval": 1_000,  # small memories: training often costs little
            "eval.interval": 2_000,
            "checkpoint.interval": 10_000,
        },
    ),
    (
        "gridworld*",
        {
            "steps": 500_000,
            "learner.gamma": 0.9,  # as in EMC's configuration of the example; with 0.99 going and staying look alike
            "rollout.epsilon_steps": 200_000,
            "learner.updates_per_call": 4,
            "memory.embedder.interval": 1_000,
            "eval.episodes": 30,
        },
    ),
    ("gridworld/tiny", {"steps": 60_000, "rollout.epsilon_steps": 20_000, "eval.interval": 4_000}),
    *(
        (
            f"gymnasium:{name}-*",
            {
                "steps": 1_000_000,
                "log_interval": 10_000,
                "memory.radius": radius,
                "memory.return_threshold": 500.0,
                "memory.embedder.interval": 100_000,
                "eval.interval": 50_000,
                "eval.episodes": 10,
                "checkpoint.interval": 200_000,
            },
        )
        for name, radius in (("Hopper", 1.3e-5), ("Walker2d", 1.3e-5), ("Humanoid", 1.3e-3))
    ),
    ("smac/*", {"steps": 2_050_000, "memory.radius": 1.3e-5}),
    *((f"smac/{name}", {"memory.radius": 1.3e-3, "steps": 5_050_000}) for name in SUPER_HARD),
    ("smac/6h_vs_8z", {"rollout.epsilon_steps": 200_000}),
    ("smac/3s5z_vs_3s6z", {"rollout.epsilon_steps": 200_000, "mixer.weighted_head": True}),
    ("smac/MMM2", {"mixer.weighted_head": True, "mixer.nonlinear": True}),
    ("smacv2/*", {"steps": 10_050_000, "memory.radius": 1.3e-5, "rollout.epsilon_steps": 100_000}),
    (
        "atari/*",
        {
            "steps": 2_000_000,
            "log_interval": 5_000,
            "learner.reward_clip": 1.0,
            "rollout.epsilon_steps": 100_000,
            "replay.steps": 250_000,
            "memory.half_precision": True,  # features come as float16
            "memory.radius": 1.3e-5,
            "memory.embedder.interval": 10_000,
            "eval.interval": 50_000,
            "eval.episodes": 8,
            "eval.epsilon": 0.05,
            "checkpoint.interval": 100_000,
        },
    ),
    ("atari/breakout", {"memory.return_threshold": 50.0}),
    ("atari/alien", {"memory.return_threshold": 40.0}),
    ("football/*", {"steps": 3_050_000, "memory.radius": 1.3e-3}),
    ("football/counterattack_*", {"eval.episodes": 20}),
]

_EMU = ("emu_qplex", "no_*")  # EMU (QPLEX) and its ablations
_CURIOUS = ("emc", *_EMU)
_NO_CURIOSITY = {"curiosity.scale": 0.0}

# Settings of one algorithm on one task: (algorithm pattern, environment pattern, changes). Later rows win.
PAIRS: list[tuple[str, str, Changes]] = [
    # Whatever the task: MAPPO's updates are on-policy, none is to be put off; TD3's noise stays as it is.
    ("mappo", "*", {"learner.updates_per_call": 1}),
    ("*td3", "*", {"rollout.epsilon_start": 0.1, "rollout.epsilon_end": 0.1}),
    # The paper's 320 and 640 samples an epoch in batches of 32, an epoch taken as an episode. The usual schedule is
    # that of `dqn` elsewhere: an update for every fourth step.
    ("*dqn", "atari/*", {"learner.updates_per_step": 0.0, "rollout.random_steps": 5_000}),
    ("*dqn", "atari/breakout", {"learner.updates_per_episode": 10}),
    ("*dqn", "atari/alien", {"learner.updates_per_episode": 20}),
    ("emu_dqn", "atari/*", {"env_args.features": "resnet18"}),
    # The paper's didactic comparison leaves curiosity out; a one-step game has nothing to be curious about.
    *((algo, env, _NO_CURIOSITY) for algo in _CURIOUS for env in ("gridworld*", "matrix/*")),
    # Curiosity hurt in football, as the paper says of its study of the radius there.
    *((algo, "football/*", _NO_CURIOSITY) for algo in _CURIOUS),
    # Curiosity hurt EMU on the super hard maps, except on corridor. The baseline EMC keeps its own there; on the two
    # maps where EMC's settings give it a scale of their own, they leave control out.
    *((algo, f"smac/{name}", _NO_CURIOSITY) for algo in _EMU for name in SUPER_HARD),
    ("emc", "smac/3s5z_vs_3s6z", {"curiosity.scale": 0.08, "memory.use": "none"}),
    ("emc", "smac/6h_vs_8z", {"curiosity.scale": 0.2, "memory.use": "none"}),
    *(
        (
            algo,
            "smac/corridor",
            {
                "curiosity.scale": 0.1,
                "curiosity.decay": 0.8,
                "curiosity.decay_interval": 200_000,
                "curiosity.floor": 0.01,
            },
        )
        for algo in _CURIOUS
    ),
    ("emu_qplex", "smac/corridor", {"memory.radius": 1.3e-5}),
    # Diversity hurt on the easy and hard maps.
    ("*cds*", "smac/*", {"diversity.beta": 0.0}),
    *(
        ("*cds*", f"smac/{name}", {"diversity.beta": beta, "diversity.beta1": 2.0, "diversity.beta2": 1.0})
        for name, beta in (("MMM2", 0.07), ("6h_vs_8z", 0.1), ("3s5z_vs_3s6z", 0.03))
    ),
    ("*cds*", "smac/3s5z_vs_3s6z", {"rollout.epsilon_steps": 500_000}),
    (
        "*cds*",
        "smac/corridor",
        {
            "diversity.beta": 0.1,
            "diversity.beta1": 0.5,
            "diversity.beta2": 0.5,
            "diversity.anneal_after": 1_000_000,
            "diversity.anneal_rate": 5.0,
        },
    ),
    ("emu_cds", "smac/MMM2", {"rollout.epsilon_steps": 500_000}),
    # Epochs and clips of MAPPO's public scripts; what they do not name has 15 and 0.2.
    *(("mappo", f"smac/{name}", {"ppo.epochs": 10}) for name in ("5m_vs_6m", "10m_vs_11m")),
    *(("mappo", f"smac/{name}", {"ppo.epochs": 5}) for name in ("3s5z", "2c_vs_64zg", "27m_vs_30m", *SUPER_HARD)),
    *(("mappo", f"smac/{name}", {"ppo.clip": 0.05}) for name in ("5m_vs_6m", "3s_vs_5z")),
]


class Variant(NamedTuple):
    summary: str
    rows: list[tuple[str, Changes]]  # (pattern of the environment's name, changes); later rows win


VARIANTS: dict[str, Variant] = {
    "fast": Variant(
        "λ-returns of 0.6 and no curiosity: cheaper and quicker to learn, not the paper's",
        [("*", {"learner.td_lambda": 0.6, **_NO_CURIOSITY})],
    ),
    "paper": Variant(
        "the paper's intervals between trainings of the embedder, where the presets have the authors'",
        [
            ("*", {"memory.embedder.interval": 1_000}),
            ("gymnasium:*", {"memory.embedder.interval": 100_000}),
            ("atari/*", {"memory.embedder.interval": 10_000}),
        ],
    ),
    "authors": Variant(
        "the memory's rules as the authors released them: counts, propagation, metric, trainings of the embedder",
        [
            (
                "*",
                {
                    "memory.count_new_desirable": False,
                    "memory.prior_visits": 0.001,
                    "memory.backward_propagation": True,
                    "memory.metric": "linf",
                    "memory.embedder.interval": 10_000,
                    "memory.embedder.min_entries": 102_400,
                },
            ),
            *((env, {"memory.count_new_desirable": True}) for env in ("smac/6h_vs_8z", "football/*")),
        ],
    ),
}


def split_name(algo: str) -> tuple[str, list[str]]:
    """The algorithm and its variants: ("emu_qplex", ["fast"]) of `emu+fast`. Unknown words are refused."""
    name, *variants = algo.split("+")
    name = ALIASES.get(name, name)
    if name not in ALGORITHMS:
        hint = did_you_mean(name, [*ALGORITHMS, *ALIASES])
        raise ConfigError(f"No algorithm is called '{name}'. {hint} `emu algos` lists them all.")
    for variant in variants:
        if variant not in VARIANTS:
            raise ConfigError(f"No variant is called '+{variant}'. {did_you_mean(variant, VARIANTS)}")
    return name, variants


def lineage(algo: str) -> list[str]:
    """The algorithm and those it builds on, the most basic first."""
    name, _ = split_name(algo)
    base = ALGORITHMS[name].base
    return [*(lineage(base) if base else []), name]


def preset(algo: str, env: str, **overrides: Any) -> Config:
    """The configuration of an algorithm on a task. What comes later wins:

    the algorithm after those it builds on, the task, the two together, the algorithm's variants, the overrides
    (dotted keys, with '__' for '.' as well).
    """
    name, variants = split_name(algo)
    changes: Changes = {"algo": "+".join([name, *variants]), "env": env}
    for ancestor in lineage(name):
        changes |= ALGORITHMS[ancestor].changes
    changes |= _matching(TASKS, env)
    for algo_pattern, env_pattern, settings in PAIRS:
        if fnmatch.fnmatch(name, algo_pattern) and fnmatch.fnmatch(env, env_pattern):
            changes |= settings
    for variant in variants:
        changes |= _matching(VARIANTS[variant].rows, env)
    changes |= {key.replace("__", "."): value for key, value in overrides.items()}
    return replace(Config(), changes)


def _matching(rows: list[tuple[str, Changes]], env: str) -> Changes:
    changes: Changes = {}
    for pattern, settings in rows:
        if fnmatch.fnmatch(env, pattern):
            changes |= settings
    return changes


def complete(settings: dict[str, Any]) -> Config:
    """A configuration from nested settings, as in a run's config.json; what they leave out is the preset's."""
    if not isinstance(settings, dict):
        raise ConfigError(f"A configuration is an object of settings, not {settings!r}.")
    base = preset(str(settings.get("algo", Config.algo)), str(settings.get("env", Config.env)))
    return from_dict(_merged(to_dict(base), settings | {"algo": base.algo}))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Groups of settings are merged, single settings replaced; the arguments of an environment are one setting."""
    merged = dict(base)
    for name, value in changes.items():
        group = isinstance(base.get(name), dict) and isinstance(value, dict) and name != "env_args"
        merged[name] = _merged(base[name], value) if group else value
    return merged
