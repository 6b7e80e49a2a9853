"""Every number of a run: frozen dataclasses, one per concern, their bounds on the fields, checked when they are made.

`to_dict` and `from_dict` are the JSON round trip; an unknown key or an impossible value is refused with a suggestion.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from emu.bounds import Count, CountOrNone, NotNegative, Options, Positive, Share, Within, check
from emu.config.build import JsonObject, build
from emu.errors import ConfigError, did_you_mean
from emu.memory.options import EmbedderOptions, MemoryOptions

MOST_GIGABYTES = 1e6
Gigabytes = Annotated[float, Within(0, open_low=True), Within(high=MOST_GIGABYTES)]
PositiveShare = Annotated[float, Within(0, 1, open_low=True)]


@dataclasses.dataclass(frozen=True)
class RolloutConfig(Options, group="rollout"):
    """Collecting experience."""

    envs: Count = 8  # copies of the environment that run side by side
    chunk: Count = 16  # steps of every copy in one compiled call; finished episodes are handed over after each chunk
    epsilon_start: Share = 1.0  # exploration at the first step
    epsilon_end: Share = 0.05  # exploration after `epsilon_steps`
    epsilon_steps: Count = 50_000  # environment steps over which exploration falls linearly
    random_steps: CountOrNone = 0  # environment steps of random actions at the start; no learning before their end
    workers: CountOrNone = 0  # processes that run Python environments; 0: one per core
    where: Literal["here", "ray"] = "here"  # workers on this machine, or on the nodes of a Ray cluster
    cluster: str = "auto"  # address of the Ray cluster; auto: the one that runs here, or RAY_ADDRESS
    timeout: Positive = 120.0  # seconds a worker may take to answer (to start included) before it is replaced
    max_failures: Count = 5  # failures of a worker in a row, without an episode finished between, that end the run

    def check_rules(self) -> None:
        check(
            self.where == "here" or self.workers >= 1,
            "rollout.where ray needs --rollout.workers: how many actors, each with a core of the cluster.",
        )
        check(
            self.epsilon_end <= self.epsilon_start,
            f"rollout.epsilon_end ({self.epsilon_end}) must not exceed rollout.epsilon_start ({self.epsilon_start}).",
        )


@dataclasses.dataclass(frozen=True)
class ReplayConfig(Options, group="replay"):
    """Episodes kept for learning; the oldest make room for the newest."""

    unit: Literal["episodes", "steps"] = "episodes"  # what a batch is made of: whole episodes, or single steps of them
    episodes: Count = 5_000  # episodes kept, where batches are made of them
    steps: Count = 1_000_000  # steps kept, where batches are made of them; an episode's end takes the room of one, too
    gigabytes: Gigabytes = 4.0  # bound on what the episodes may hold, whatever their number


@dataclasses.dataclass(frozen=True)
class AgentConfig(Options, group="agent"):
    """The agents' recurrent network."""

    hidden: Count = 64  # width of the input layer and of the GRU
    last_action: bool = True  # append the one-hot last action to the observation
    agent_id: bool = True  # append a one-hot agent number
    own_heads: bool = False  # CDS: an own Q head per agent beside the shared one
    share_parameters: bool = True  # one network for all agents; false: a network for each, which needs no number

    def check_rules(self) -> None:
        check(
            self.share_parameters or not self.own_heads,
            "agent.own_heads stand beside a shared head: leave agent.share_parameters on.",
        )


@dataclasses.dataclass(frozen=True)
class MixerConfig(Options, group="mixer"):
    """How the agents' values become the team's."""

    kind: Literal["vdn", "qmix", "qplex", "none"] = "qmix"  # the mixing network; none: every agent by itself
    embed: Count = 32  # QMIX: width of the mixing layer; QPLEX: width of queries and keys
    hyper_hidden: Count = 64  # width of the hypernetworks' hidden layer
    heads: Count = 4  # QPLEX: attention heads of the transformation
    kernels: Count = 4  # QPLEX: kernels of the importance weights
    importance_layers: Count = 1  # QPLEX: layers of the networks that give the importance weights
    weighted_head: bool = False  # QPLEX: weigh the heads by the state (MMM2, 3s5z_vs_3s6z)
    nonlinear: bool = False  # QPLEX: keys also see Q_i (MMM2)
    attention_regulariser: NotNegative = 0.001  # QPLEX: weight of the attention's regularising loss


@dataclasses.dataclass(frozen=True)
class LearnerConfig(Options, group="learner"):
    """The update."""

    kind: str = "value"  # value: Q-learning for teams; mappo; td3 and dqn: one agent; or module:Name from outside
    settings: JsonObject = dataclasses.field(default_factory=dict)  # of a learner from outside, as JSON
    gamma: Share = 0.99  # discount factor
    learning_rate: Positive = 5e-4  # of RMSprop; MAPPO, TD3, DQN: of Adam
    rmsprop_decay: Annotated[float, Within(0, 1, open_high=True)] = 0.99  # PyTorch's alpha
    rmsprop_eps: Positive = 1e-5  # added outside the root, as PyTorch does
    max_grad_norm: Positive = 10.0  # gradients longer than this are scaled down to it; not in TD3
    batch_size: Count = 32  # episodes (or steps: replay.unit) per update
    updates_per_episode: CountOrNone = 1  # n_circle: updates for every episode collected
    updates_per_step: NotNegative = 0.0  # further updates for every step of the episodes collected
    updates_per_call: Count = 1  # updates that one compiled call does; owed ones wait until so many are due
    target_interval: Count = 200  # teams: collected episodes between hard copies into the target network
    td_lambda: Share = 0.0  # teams: how far targets look ahead, 0: one step (the paper), 1: the whole episode
    double_q: bool = True  # choose the next action by the online network, value it by the target network
    reward_clip: NotNegative = 0.0  # learner and memory see rewards cut to ± this, metrics the whole ones; 0: not cut
    length_buckets: Annotated[int, Within(1, 16)] = 4  # number of batch lengths the learner may be compiled for

    def check_rules(self) -> None:
        check(
            self.td_lambda == 0 or self.kind == "value",
            f"learner.td_lambda is for the value learners of teams; {self.kind} has its own targets. Leave it at 0.",
        )
        check(
            self.updates_per_episode + self.updates_per_step > 0,
            "learner.updates_per_episode and learner.updates_per_step must not both be 0: nothing would be learnt.",
        )


@dataclasses.dataclass(frozen=True)
class DQNConfig(Options, group="dqn"):
    """DQN's network and loss; used where `learner.kind` is dqn."""

    hidden: Count = 512  # width of the dense layer behind the convolutions; of both layers where vectors are observed
    huber: Positive = 1.0  # TD errors beyond this count linearly
    target_interval: Count = 1_000  # updates between hard copies into the target network


@dataclasses.dataclass(frozen=True)
class PPOConfig(Options, group="ppo"):
    """MAPPO's losses; used where `learner.kind` is mappo."""

    critic: Literal["central", "own"] = "central"  # one value of the state; or of what each agent saw (IPPO)
    epochs: Count = 15  # gradient steps on every batch, each on the whole of it
    clip: Positive = 0.2  # how far ratios of probabilities, and normalised values, may usefully move within an update
    gae_lambda: Share = 0.95  # between one-step (0) and Monte Carlo (1) advantages
    entropy: NotNegative = 0.01  # weight of the policy's entropy
    huber: Positive = 10.0  # normalised errors of the value beyond this count linearly


@dataclasses.dataclass(frozen=True)
class TD3Config(Options, group="td3"):
    """TD3's networks and targets; used where `learner.kind` is td3."""

    hidden: Count = 256  # width of both hidden layers of the actor and of each critic
    policy_interval: Count = 2  # updates of the critics for one of the policy and the targets
    soft_update: PositiveShare = 0.005  # tau: share of the networks that the targets take over each time
    smoothing: NotNegative = 0.2  # standard deviation of the noise on the target policy's actions
    smoothing_clip: NotNegative = 0.5  # that noise never exceeds this


@dataclasses.dataclass(frozen=True)
class EmbedderConfig(EmbedderOptions, group="memory.embedder"):
    """What turns a state into the memory's key, and how it is trained; with settings of embedders from outside."""

    settings: JsonObject = dataclasses.field(default_factory=dict)  # of an embedder from outside, as JSON


@dataclasses.dataclass(frozen=True)
class MemoryConfig(MemoryOptions, group="memory"):
    """Episodic memory: the memory's own options, and what training does with it."""

    use: Literal["none", "incentive", "control"] = "none"  # EMU's episodic incentive, or conventional episodic control
    rejudge: bool = False  # at every embedder interval, memories at or above the mean H become the desirable ones
    optimistic: bool = False  # 1 for desirable memories in place of desirable visits over visits
    incentive_steps: CountOrNone = 0  # environment steps over which the incentive fades to nothing; 0: it stays
    control_weight: NotNegative = 0.1  # lambda of conventional episodic control
    snapshot_interval: CountOrNone = 100_000  # environment steps between small pictures of it for `emu report`; 0: none
    embedder: EmbedderConfig = EmbedderConfig()

    def check_rules(self) -> None:
        super().check_rules()
        check(self.gigabytes <= MOST_GIGABYTES, f"memory.gigabytes must be at most 1000000, not {self.gigabytes:g}.")


@dataclasses.dataclass(frozen=True)
class CuriosityConfig(Options, group="curiosity"):
    """EMC's curiosity; off while the scale is 0."""

    scale: NotNegative = 0.0  # weight of the intrinsic reward
    decay: PositiveShare = 0.9  # factor every `decay_interval` environment steps
    decay_interval: Count = 100_000  # environment steps between two decays
    floor: NotNegative = 0.0  # the scale never falls below this
    soft_update: PositiveShare = 0.005  # share of the second agent that its slow copy takes over at each update
    target_factor: float = 10.0  # the predictor's target is this multiple of the slow copy's Q
    learning_rate: Positive = 5e-4  # of the predictors


@dataclasses.dataclass(frozen=True)
class DiversityConfig(Options, group="diversity"):
    """CDS: diversity reward and the penalty on own heads (which `agent.own_heads` switches on)."""

    beta: NotNegative = 0.0  # scale of the reward; 0: no diversity reward
    beta1: float = 0.5  # weight of the own predictor's error, and scale of Q in the agents' policies
    beta2: float = 1.0  # weight of how far the agents' policies lie apart
    anneal_after: CountOrNone = 0  # environment steps after which beta falls; 0: never
    anneal_rate: NotNegative = 5.0  # share of beta lost per million steps after that
    own_head_penalty: NotNegative = 0.1  # L1 on the own heads' output
    hidden: Count = 128  # width of the predictors
    learning_rate: Positive = 1e-3  # of the predictors
    minibatch: Count = 256  # steps per gradient step of the predictors
    max_grad_norm: Positive = 1.0  # gradients longer than this are scaled down to it


@dataclasses.dataclass(frozen=True)
class EllipticalConfig(Options, group="elliptical"):
    """E3B's bonus on the memory's embeddings; off while the scale is 0."""

    scale: NotNegative = 0.0  # beta_e3b
    ridge: Positive = 0.1  # lambda_e3b


@dataclasses.dataclass(frozen=True)
class EvalConfig(Options, group="eval"):
    """Greedy tests during training."""

    interval: Count = 10_000  # environment steps between tests
    episodes: Count = 32  # greedy episodes of one test
    epsilon: Share = 0.0  # Atari: exploration that is left in tests, so that no game waits for ever to be started


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Options, group="checkpoint"):
    """What a stopped run goes on from."""

    interval: Count = 50_000  # environment steps between full checkpoints
    minutes: NotNegative = 5.0  # and one whenever so many minutes have passed since the last; 0: by steps alone
    keep: Count = 2  # full checkpoints kept; the newest that can be read is resumed from


@dataclasses.dataclass(frozen=True)
class Config(Options):
    """Everything a run depends on."""

    algo: str = "qmix"  # `emu algos` lists them
    env: str = "gridworld"  # `emu envs` lists them
    env_args: JsonObject = dataclasses.field(default_factory=dict)  # arguments of the environment, as JSON
    seed: Annotated[int, Within(0, 2**32 - 1)] = 0  # of everything random
    steps: Annotated[int, Within(1, 2**31 - 1)] = 500_000  # environment steps in all
    log_interval: Count = 2_000  # environment steps between training rows in metrics.jsonl
    devices: CountOrNone = 0  # devices to share the work among; 0: all accelerators, or one CPU device per core
    tensorboard: bool = True  # write TensorBoard files beside metrics.jsonl
    terms: JsonObject = dataclasses.field(default_factory=dict)  # terms from outside: {"module:Name": {its settings}}
    loggers: JsonObject = dataclasses.field(default_factory=dict)  # more loggers: {"wandb": {}, "module:Name": {…}}
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

    def check_rules(self) -> None:
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
