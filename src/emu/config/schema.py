"""Every number of a run: frozen dataclasses, one per concern, validated when they are made.

`to_dict` and `from_dict` are the JSON round trip; an unknown key or an impossible value is refused with a suggestion.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

from emu.config.build import JsonObject, build
from emu.errors import ConfigError, did_you_mean

LossCase = Literal["reconstruction_no_time", "reconstruction_time", "return_only", "both"]


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """Collecting experience."""

    envs: int = 8  # copies of the environment that run side by side
    chunk: int = 16  # steps of every copy in one compiled call; finished episodes are handed over after each chunk
    epsilon_start: float = 1.0  # exploration at the first step
    epsilon_end: float = 0.05  # exploration after `epsilon_steps`
    epsilon_steps: int = 50_000  # environment steps over which exploration falls linearly
    random_steps: int = 0  # environment steps of random actions at the start; nothing is learned before their end
    workers: int = 0  # processes that run Python environments; 0: one per core
    where: Literal["here", "ray"] = "here"  # workers on this machine, or on the nodes of a Ray cluster
    cluster: str = "auto"  # address of the Ray cluster; auto: the one that runs here, or RAY_ADDRESS
    timeout: float = 120.0  # seconds a worker may take to answer (to start included) before it is replaced
    max_failures: int = 5  # failures of a worker in a row, without an episode finished between, that end the run

    def __post_init__(self) -> None:
        check(self.envs >= 1 and self.chunk >= 1, "rollout.envs and rollout.chunk must be at least 1.")
        check(
            self.workers >= 0 and self.timeout > 0 and self.max_failures >= 1,
            "rollout.workers must not be negative, rollout.timeout be positive, rollout.max_failures at least 1.",
        )
        check(
            self.where == "here" or self.workers >= 1,
            "rollout.where ray needs --rollout.workers: how many actors, each with a core of the cluster.",
        )
        check(
            0 <= self.epsilon_end <= self.epsilon_start <= 1 and self.epsilon_steps >= 1 and self.random_steps >= 0,
            "rollout.epsilon needs 0 <= end <= start <= 1 and steps >= 1; rollout.random_steps must not be negative.",
        )


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    """Episodes kept for learning; the oldest make room for the newest."""

    unit: Literal["episodes", "steps"] = "episodes"  # what a batch is made of: whole episodes, or single steps of them
    episodes: int = 5_000  # episodes kept, where batches are made of them
    steps: int = 1_000_000  # steps kept, where batches are made of them; an episode's end takes the room of one, too
    gigabytes: float = 4.0  # bound on what the episodes may hold, whatever their number

    def __post_init__(self) -> None:
        check(
            min(self.episodes, self.steps) >= 1 and self.gigabytes > 0,
            "replay.episodes, replay.steps and replay.gigabytes must be positive.",
        )


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """The agents' recurrent network."""

    hidden: int = 64  # width of the input layer and of the GRU
    last_action: bool = True  # append the one-hot last action to the observation
    agent_id: bool = True  # append a one-hot agent number
    own_heads: bool = False  # CDS: an own Q head per agent beside the shared one
    share_parameters: bool = True  # one network for all agents; false: a network for each, which needs no number

    def __post_init__(self) -> None:
        check(self.hidden >= 1, "agent.hidden must be at least 1.")
        check(
            self.share_parameters or not self.own_heads,
            "agent.own_heads stand beside a shared head: leave agent.share_parameters on.",
        )


@dataclasses.dataclass(frozen=True)
class MixerConfig:
    """How the agents' values become the team's."""

    kind: Literal["vdn", "qmix", "qplex", "none"] = "qmix"  # the mixing network; none: every agent by itself
    embed: int = 32  # QMIX: width of the mixing layer; QPLEX: width of queries and keys
    hyper_hidden: int = 64  # width of the hypernetworks' hidden layer
    heads: int = 4  # QPLEX: attention heads of the transformation
    kernels: int = 4  # QPLEX: kernels of the importance weights
    importance_layers: int = 1  # QPLEX: layers of the networks that give the importance weights
    weighted_head: bool = False  # QPLEX: weigh the heads by the state (MMM2, 3s5z_vs_3s6z)
    nonlinear: bool = False  # QPLEX: keys also see Q_i (MMM2)
    attention_regulariser: float = 0.001  # QPLEX: weight of the attention's regularising loss

    def __post_init__(self) -> None:
        check(
            min(self.embed, self.hyper_hidden, self.heads, self.kernels, self.importance_layers) >= 1,
            "mixer sizes must be at least 1.",
        )
        check(self.attention_regulariser >= 0, "mixer.attention_regulariser must not be negative.")


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """The update."""

    kind: str = "value"  # value: Q-learning for teams; mappo; td3 and dqn: one agent; or module:Name from outside
    settings: JsonObject = dataclasses.field(default_factory=dict)  # of a learner from outside, as JSON
    gamma: float = 0.99  # discount factor
    learning_rate: float = 5e-4  # of RMSprop; MAPPO, TD3, DQN: of Adam
    rmsprop_decay: float = 0.99  # PyTorch's alpha
    rmsprop_eps: float = 1e-5  # added outside the root, as PyTorch does
    max_grad_norm: float = 10.0  # gradients longer than this are scaled down to it; not in TD3
    batch_size: int = 32  # episodes (or steps: replay.unit) per update
    updates_per_episode: int = 1  # n_circle: updates for every episode collected
    updates_per_step: float = 0.0  # further updates for every step of the episodes collected
    updates_per_call: int = 1  # updates that one compiled call does; owed ones wait until so many are due
    target_interval: int = 200  # teams: collected episodes between hard copies into the target network
    td_lambda: float = 0.0  # teams: how far targets look ahead, 0: one step (the paper), 1: the whole episode
    double_q: bool = True  # choose the next action by the online network, value it by the target network
    reward_clip: float = 0.0  # learner and memory see rewards cut to ± this, metrics the whole ones; 0: not cut
    length_buckets: int = 4  # number of batch lengths the learner may be compiled for

    def __post_init__(self) -> None:
        check(0 <= self.gamma <= 1, f"learner.gamma must lie in [0, 1], not {self.gamma}.")
        check(0 <= self.td_lambda <= 1, f"learner.td_lambda must lie in [0, 1], not {self.td_lambda}.")
        check(
            self.td_lambda == 0 or self.kind == "value",
            f"learner.td_lambda is for the value learners of teams; {self.kind} has its own targets. Leave it at 0.",
        )
        check(
            self.learning_rate > 0 and self.max_grad_norm > 0,
            "learner.learning_rate and max_grad_norm must be positive.",
        )
        check(self.reward_clip >= 0, "learner.reward_clip must not be negative (0: rewards are not cut).")
        check(
            0 <= self.rmsprop_decay < 1 and self.rmsprop_eps > 0,
            "learner.rmsprop_decay in [0, 1), rmsprop_eps positive.",
        )
        check(
            min(self.batch_size, self.updates_per_call, self.target_interval) >= 1 and 1 <= self.length_buckets <= 16,
            "learner.batch_size, updates_per_call, target_interval >= 1; 1 <= length_buckets <= 16.",
        )
        check(
            min(self.updates_per_episode, self.updates_per_step) >= 0
            and self.updates_per_episode + self.updates_per_step > 0,
            "learner.updates_per_episode and updates_per_step must not be negative, nor both be 0.",
        )


@dataclasses.dataclass(frozen=True)
class DQNConfig:
    """DQN's network and loss; used where `learner.kind` is dqn."""

    hidden: int = 512  # width of the dense layer behind the convolutions; of both layers where vectors are observed
    huber: float = 1.0  # TD errors beyond this count linearly
    target_interval: int = 1_000  # updates between hard copies into the target network

    def __post_init__(self) -> None:
        check(
            min(self.hidden, self.target_interval) >= 1 and self.huber > 0,
            "dqn.hidden and dqn.target_interval must be at least 1, dqn.huber positive.",
        )


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """MAPPO's losses; used where `learner.kind` is mappo."""

    critic: Literal["central", "own"] = "central"  # one value of the state; or of what each agent saw (IPPO)
    epochs: int = 15  # gradient steps on every batch, each on the whole of it
    clip: float = 0.2  # how far ratios of probabilities, and normalised values, may usefully move within an update
    gae_lambda: float = 0.95  # between one-step (0) and Monte Carlo (1) advantages
    entropy: float = 0.01  # weight of the policy's entropy
    huber: float = 10.0  # normalised errors of the value beyond this count linearly

    def __post_init__(self) -> None:
        check(self.epochs >= 1 and self.clip > 0, "ppo.epochs must be at least 1, ppo.clip positive.")
        check(0 <= self.gae_lambda <= 1, f"ppo.gae_lambda must lie in [0, 1], not {self.gae_lambda}.")
        check(self.entropy >= 0 and self.huber > 0, "ppo.entropy must not be negative, ppo.huber be positive.")


@dataclasses.dataclass(frozen=True)
class TD3Config:
    """TD3's networks and targets; used where `learner.kind` is td3."""

    hidden: int = 256  # width of both hidden layers of the actor and of each critic
    policy_interval: int = 2  # updates of the critics for one of the policy and the targets
    soft_update: float = 0.005  # tau: share of the networks that the targets take over each time
    smoothing: float = 0.2  # standard deviation of the noise on the target policy's actions
    smoothing_clip: float = 0.5  # that noise never exceeds this

    def __post_init__(self) -> None:
        check(min(self.hidden, self.policy_interval) >= 1, "td3.hidden and td3.policy_interval must be at least 1.")
        check(0 < self.soft_update <= 1, f"td3.soft_update must lie in (0, 1], not {self.soft_update}.")
        check(min(self.smoothing, self.smoothing_clip) >= 0, "td3.smoothing and smoothing_clip must not be negative.")


@dataclasses.dataclass(frozen=True)
class EmbedderConfig:
    """What turns a state into the memory's key."""

    kind: str = "dcae"  # random: projection; embnet, dcae: networks that predict the return; or module:Name
    settings: JsonObject = dataclasses.field(default_factory=dict)  # of an embedder from outside, as JSON
    interval: int = 1_000  # t_emb: environment steps between trainings (the authors' code uses 10,000)
    samples: int = 102_400  # memories per training
    batch_size: int = 1_024  # memories per gradient step
    learning_rate: float = 5e-4  # of the embedder's optimiser
    max_grad_norm: float = 10.0  # gradients longer than this are scaled down to it
    reconstruction_weight: float = 0.1  # lambda_rcon
    loss_case: LossCase = "both"  # what dCAE's loss is made of: the paper's ablation
    warm_start: bool = True  # go on with the weights of the last interval; false: start anew each time

    def __post_init__(self) -> None:
        check(
            min(self.interval, self.samples, self.batch_size) >= 1
            and self.learning_rate > 0
            and self.max_grad_norm > 0,
            "embedder.interval, samples, batch_size, learning_rate and max_grad_norm must be positive.",
        )
        check(self.batch_size <= self.samples, "embedder.batch_size must not exceed embedder.samples.")
        check(self.reconstruction_weight >= 0, "embedder.reconstruction_weight must not be negative.")


@dataclasses.dataclass(frozen=True)
class MemoryConfig:
    """Episodic memory."""

    use: Literal["none", "incentive", "control"] = "none"  # EMU's episodic incentive, or conventional episodic control
    capacity: int = 1_000_000  # memories kept
    gigabytes: float = 4.0  # bound on the whole memory, whatever its capacity
    key_dim: int = 4  # dimension of a key
    radius: float = 1.3e-3  # delta; 0: chosen from capacity and dimension
    metric: Literal["l2", "linf"] = "l2"  # distance between keys
    half_precision: bool = False  # keep states in float16
    return_threshold: float | None = None  # R_thr: from which return on an episode is desirable; None: when it is won
    return_quantile: float | None = None  # instead: the quantile of the last 1,000 returns that an episode must reach
    rejudge: bool = False  # at every embedder interval, memories at or above the mean H become the desirable ones
    count_new_desirable: bool = True  # a new desirable memory counts as one desirable visit
    backward_propagation: bool = False  # authors' code: after a desirable match the rest of the episode is desirable
    optimistic: bool = False  # the incentive goes by desirability itself instead of its frequency
    control_weight: float = 0.1  # lambda of conventional episodic control
    snapshot_interval: int = 100_000  # environment steps between small pictures of the memory for `emu report`; 0: none
    embedder: EmbedderConfig = EmbedderConfig()

    def __post_init__(self) -> None:
        check(
            self.capacity >= 1 and self.gigabytes > 0,
            "memory.capacity and memory.gigabytes must be positive.",
        )
        check(1 <= self.key_dim <= 8, "memory.key_dim must lie between 1 and 8.")
        check(
            self.radius >= 0 and self.control_weight >= 0,
            "memory.radius and control_weight must not be negative.",
        )
        check(
            self.return_quantile is None or (0 <= self.return_quantile <= 1 and self.return_threshold is None),
            "memory.return_quantile must lie between 0 and 1, and excludes memory.return_threshold.",
        )
        check(self.snapshot_interval >= 0, "memory.snapshot_interval must not be negative (0: no snapshots).")


@dataclasses.dataclass(frozen=True)
class CuriosityConfig:
    """EMC's curiosity; off while the scale is 0."""

    scale: float = 0.0  # weight of the intrinsic reward
    decay: float = 0.9  # factor every `decay_interval` environment steps
    decay_interval: int = 100_000  # environment steps between two decays
    floor: float = 0.0  # the scale never falls below this
    soft_update: float = 0.005  # share of the second agent that its slow copy takes over at each update
    target_factor: float = 10.0  # the predictor's target is this multiple of the slow copy's Q
    learning_rate: float = 5e-4  # of the predictors

    def __post_init__(self) -> None:
        check(self.scale >= 0 and self.floor >= 0, "curiosity.scale and curiosity.floor must not be negative.")
        check(
            0 < self.decay <= 1 and self.decay_interval >= 1,
            "curiosity.decay in (0, 1], decay_interval at least 1.",
        )


@dataclasses.dataclass(frozen=True)
class DiversityConfig:
    """CDS: diversity reward and the penalty on own heads (which `agent.own_heads` switches on)."""

    beta: float = 0.0  # scale of the reward; 0: no diversity reward
    beta1: float = 0.5  # weight of the own predictor's error, and scale of Q in the agents' policies
    beta2: float = 1.0  # weight of how far the agents' policies lie apart
    anneal_after: int = 0  # environment steps after which beta falls; 0: never
    anneal_rate: float = 5.0  # share of beta lost per million steps after that
    own_head_penalty: float = 0.1  # L1 on the own heads' output
    hidden: int = 128  # width of the predictors
    learning_rate: float = 1e-3  # of the predictors
    minibatch: int = 256  # steps per gradient step of the predictors
    max_grad_norm: float = 1.0  # gradients longer than this are scaled down to it

    def __post_init__(self) -> None:
        check(
            self.beta >= 0 and self.own_head_penalty >= 0,
            "diversity.beta and own_head_penalty must not be negative.",
        )
        check(
            self.hidden >= 1 and self.minibatch >= 1,
            "diversity.hidden and diversity.minibatch must be at least 1.",
        )


@dataclasses.dataclass(frozen=True)
class EllipticalConfig:
    """E3B's bonus on the memory's embeddings; off while the scale is 0."""

    scale: float = 0.0  # beta_e3b
    ridge: float = 0.1  # lambda_e3b

    def __post_init__(self) -> None:
        check(
            self.scale >= 0 and self.ridge > 0,
            "elliptical.scale must not be negative, elliptical.ridge positive.",
        )


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Greedy tests during training."""

    interval: int = 10_000  # environment steps between tests
    episodes: int = 32  # greedy episodes of one test
    epsilon: float = 0.0  # Atari: exploration that is left in tests, so that no game waits for ever to be started

    def __post_init__(self) -> None:
        check(self.interval >= 1 and self.episodes >= 1, "eval.interval and eval.episodes must be at least 1.")
        check(0 <= self.epsilon <= 1, "eval.epsilon must lie between 0 and 1.")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What a stopped run goes on from."""

    interval: int = 50_000  # environment steps between full checkpoints
    keep: int = 2  # full checkpoints kept; the newest that can be read is resumed from

    def __post_init__(self) -> None:
        check(
            self.interval >= 1 and self.keep >= 1,
            "checkpoint.interval and checkpoint.keep must be at least 1.",
        )


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything a run depends on."""

    algo: str = "qmix"  # `emu algos` lists them
    env: str = "gridworld"  # `emu envs` lists them
    env_args: JsonObject = dataclasses.field(default_factory=dict)  # arguments of the environment, as JSON
    seed: int = 0  # of everything random
    steps: int = 500_000  # environment steps in all
    log_interval: int = 2_000  # environment steps between training rows in metrics.jsonl
    devices: int = 0  # devices to share the work among; 0: all accelerators, or one CPU device per core
    tensorboard: bool = True  # write TensorBoard files beside metrics.jsonl
    terms: JsonObject = dataclasses.field(default_factory=dict)  # terms from outside: {"module:Name": {its settings}}
    loggers: JsonObject = dataclasses.field(default_factory=dict)  # further loggers: {"module:Name": {its settings}}
    rollout: RolloutConfig = RolloutConfig()
    replay: ReplayConfig = ReplayConfig()
    agent: AgentConfig = AgentConfig()
    mixer: MixerConfig = MixerConfig()
    learner: LearnerConfig = LearnerConfig()
    dqn: DQNConfig = DQNConfig()
    ppo: PPOConfig = PPOConfig()
    td3: TD3Config = TD3Config()
    memory: MemoryConfig = MemoryConfig()
    curiosity: CuriosityConfig = CuriosityConfig()
    diversity: DiversityConfig = DiversityConfig()
    elliptical: EllipticalConfig = EllipticalConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    def __post_init__(self) -> None:
        for path, value in _numbers(self):
            check(math.isfinite(value), f"{path} must be a finite number, not {value}.")
        check(0 <= self.seed < 2**32, f"seed must lie between 0 and {2**32 - 1}, not {self.seed}.")
        check(
            1 <= self.steps < 2**31 and self.log_interval >= 1,
            f"steps must lie between 1 and {2**31 - 1}, log_interval be at least 1.",
        )
        check(self.devices >= 0, "devices must not be negative.")
        kept = getattr(self.replay, self.replay.unit)
        check(
            self.learner.batch_size <= kept,
            f"learner.batch_size ({self.learner.batch_size}) exceeds replay.{self.replay.unit} ({kept}): "
            "no batch could ever be drawn. Lower the one or raise the other.",
        )
        check(
            self.learner.kind != "mappo" or (self.rollout.epsilon_end > 0 and self.replay.unit == "episodes"),
            "MAPPO draws actions from its policy and learns from whole episodes: leave rollout.epsilon_end at 1, "
            "replay.unit at episodes.",
        )
        check(
            self.diversity.beta == 0 or self.agent.own_heads,
            "diversity.beta needs agent.own_heads: without own heads the agents cannot differ.",
        )
        check(
            self.elliptical.scale == 0 or self.memory.embedder.kind != "random",
            "elliptical.scale needs a trained embedder (memory.embedder.kind embnet or dcae).",
        )


def _numbers(config: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """All floats of a configuration, with their paths."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{where}{field.name}.")
        elif isinstance(value, float):
            yield f"{where}{field.name}", value


def to_dict(config: Any) -> dict[str, Any]:
    """A plain, JSON-ready dictionary."""
    return dataclasses.asdict(config)


def from_dict(data: dict[str, Any], kind: type = Config) -> Any:
    """Rebuild a config; strict about keys and types."""
    return build(kind, data)


def replace(config: Any, overrides: dict[str, Any]) -> Any:
    """A copy with dotted keys changed: `replace(config, {"mixer.kind": "vdn", "seed": 3})`."""
    data = to_dict(config)
    for path, value in overrides.items():
        node, *rest = path.split(".")
        target: Any = data
        while rest and isinstance(target.get(node), dict):
            target, node, rest = target[node], rest[0], rest[1:]
        if rest:
            raise ConfigError(f"Unknown configuration key '{path}'. {did_you_mean(node, target)}")
        target[node] = value
    return from_dict(data, type(config))
