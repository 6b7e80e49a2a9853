"""JaxMARL's environments (SMAX, MPE, Overcooked, Hanabi, ...), compiled like our own.

    emu train --algo qmix --env jaxmarl:HeuristicEnemySMAX --env-args '{"scenario": "3m", "reward_scale": 10}'

What `reset` and `step_env` return is kept in the state as one matrix of observations, (N, O), padded with zeros where
agents see less than others, and a global state: JaxMARL's `world_state`, or else all observations side by side. SMAX's
world state holds places from 0 to 32 and cooldowns that fall below zero without end, which blow up what a mixer makes
of it: both are brought into [0, 1] as in SMAX's own observations.

The keys are used as `MultiAgentEnv.step` uses them, so the same keys and actions give what JaxMARL's own loop gives, up
to the end of an episode: JaxMARL then starts anew by itself, here the rollout does.

JaxMARL folds the clock into "done". Here the clock runs beside the environment: when `episode_limit` (its `max_steps`)
is reached the episode is truncated. In SMAX a battle decided in the very last step is terminated all the same.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from emu.envs.spec import EnvSpec
from emu.errors import EnvError, did_you_mean
from emu.types import Array, Outcome, PyTree


class JaxMarlState(NamedTuple):
    inner: PyTree  # JaxMARL's own state
    obs: Array  # (N, O) float32
    world: Array  # (S,) float32
    time: Array  # () int32


class JaxMarlEnv:
    """A team of all agents of a JaxMARL environment; it has a goal in SMAX only: enemies dead, someone alive."""

    def __init__(
        self,
        target: str,
        /,
        *,
        episode_limit: int | None = None,
        team_reward: Literal["mean", "sum"] = "mean",
        reward_scale: float = 1.0,
        return_range: tuple[float, float] | None = None,
        **args: Any,
    ) -> None:
        if team_reward not in ("mean", "sum"):
            raise EnvError(f"team_reward is 'mean' or 'sum', not {team_reward!r}.")
        self.env = _make(target, args)
        self.agents: list[str] = list(self.env.agents)
        self.weight = reward_scale / (len(self.agents) if team_reward == "mean" else 1)
        self.actions = [self._discrete(target, agent) for agent in self.agents]
        self._avail = self._find_avail()
        self.has_enemies = hasattr(self.env, "enemy_agents")
        self.is_smax = "SMAX" in target
        seen = self._observations(target)
        self.obs_dim = max(int(seen[agent].size) for agent in self.agents)
        n, world = len(self.agents), int(seen["world_state"].size) if "world_state" in seen else None
        if return_range is None:
            most = reward_scale * (1.0 + getattr(self.env, "won_battle_bonus", 0.0))
            whole = self.has_enemies and not self.env.use_self_play_reward and team_reward == "mean"
            return_range = (0.0, most) if whole else (-jnp.inf, jnp.inf)
        self.spec = EnvSpec(
            name=f"jaxmarl:{target}",
            version=f"jaxmarl {version('jaxmarl')}",
            n_agents=n,
            n_actions=max(self.actions),
            obs_dim=self.obs_dim,
            state_dim=world or n * self.obs_dim,
            episode_limit=episode_limit or self._limit(target),
            unit_dim=len(self.env.own_features) if self.has_enemies else (world or n * self.obs_dim) // n,
            has_goal=self.has_enemies,
            return_range=(float(return_range[0]), float(return_range[1])),
        )

    def reset(self, key: Array) -> JaxMarlState:
        obs, state = self.env.reset(key)
        return self._look(obs, state, jnp.int32(0))

    def step(self, state: JaxMarlState, action: Array, key: Array) -> tuple[JaxMarlState, Outcome]:
        key = jax.random.split(key)[0]  # as in `MultiAgentEnv.step`, whose other half is for starting anew
        wanted = {agent: action[i] for i, agent in enumerate(self.agents)}
        seen, inner, rewards, done, _ = self.env.step_env(key, state.inner, wanted)
        reward = self.weight * sum(jnp.float32(rewards[agent]) for agent in self.agents)
        time = state.time + 1
        late = time >= self.spec.episode_limit
        over, won = self._battle(inner) if self.has_enemies else (done["__all__"] & ~late, jnp.bool_(False))
        same = jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape).astype(old.dtype), inner, state.inner)
        return self._look(seen, same, time), Outcome(reward, over, late & ~over, won)

    def observe(self, state: JaxMarlState) -> Array:
        return state.obs

    def avail(self, state: JaxMarlState) -> Array:
        """Also where JaxMARL has no masks: actions that only other agents have are not available."""
        if self._avail is None:
            return jnp.arange(self.spec.n_actions) < jnp.array(self.actions)[:, None]
        masks = self._avail(state.inner)
        return jnp.stack([_pad(masks[agent] > 0, self.spec.n_actions) for agent in self.agents])

    def state(self, state: JaxMarlState) -> Array:
        return state.world

    def _look(self, seen: dict[str, Array], inner: PyTree, time: Array) -> JaxMarlState:
        obs = jnp.stack([_pad(jnp.float32(seen[agent]).reshape(-1), self.obs_dim) for agent in self.agents])
        world = jnp.float32(seen["world_state"]).reshape(-1) if "world_state" in seen else obs.reshape(-1)
        world = self._tamed(world) if self.is_smax else world
        return JaxMarlState(inner, obs, world, time)

    def _tamed(self, world: Array) -> Array:
        """SMAX: per unit its own features (life, place, cooldown, type); then all units' teams, then their types."""
        env, units = self.env, self.env.num_allies + self.env.num_enemies
        own, rest = jnp.split(world, [units * len(env.own_features)])
        own = own.reshape(units, -1)
        place = own[:, 1:3] / jnp.array([env.map_width, env.map_height])
        period = env.unit_type_weapon_cooldowns[rest[units:].astype(int)]
        own = own.at[:, 1:4].set(jnp.concatenate([place, jnp.clip(own[:, 3:4] / period[:, None], 0, 1)], axis=1))
        return jnp.concatenate([own.reshape(-1), rest])

    def _battle(self, inner: PyTree) -> tuple[Array, Array]:
        """Whether an SMAX battle is decided, and whether it is won."""
        allies, enemies = jnp.split(inner.state.unit_alive, [self.env.num_allies])
        return ~allies.any() | ~enemies.any(), allies.any() & ~enemies.any()

    def _discrete(self, target: str, agent: str) -> int:
        space = self.env.action_space(agent)
        if not hasattr(space, "n"):
            kind = type(space).__name__
            raise EnvError(f"Agent '{agent}' of {target} acts in a {kind} space; EMU needs discrete actions.")
        return int(space.n)

    def _observations(self, target: str) -> dict[str, Any]:
        """Shapes of what is seen after `reset`."""
        seen, _ = jax.eval_shape(self.env.reset, jax.random.PRNGKey(0))
        if not isinstance(seen, dict) or any(agent not in seen for agent in self.agents):
            raise EnvError(f"{target} does not name its observations by agent, so EMU cannot tell whose they are.")
        return seen

    def _find_avail(self) -> Callable[[PyTree], dict[str, Array]] | None:
        """What gives the masks: not every environment has them, and Hanabi calls them moves."""
        _, inner = jax.eval_shape(self.env.reset, jax.random.PRNGKey(0))
        for name in ("get_legal_moves", "get_avail_actions"):
            with contextlib.suppress(AttributeError, NotImplementedError):
                jax.eval_shape(getattr(self.env, name), inner)
                return getattr(self.env, name)
        return None

    def _limit(self, target: str) -> int:
        limit = getattr(self.env, "max_steps", None)
        if limit is None:
            raise EnvError(
                f"{target} does not say how long an episode may be: give it as --env-args '{{\"episode_limit\": 100}}'."
            )
        return int(limit)


def _pad(row: Array, size: int) -> Array:
    return jnp.pad(row, (0, size - row.shape[0]))


@contextlib.contextmanager
def _own_streams() -> Iterator[None]:
    """JaxMARL prints when it is imported, and leaves `sys.__stdout__` where another standard output was."""
    before = {name: getattr(sys, name) for name in ("stdout", "stderr", "__stdout__")}
    sys.stdout = sys.__stdout__ = io.StringIO()
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)


def _make(target: str, args: dict[str, Any]) -> Any:
    try:
        with _own_streams():
            import jaxmarl
            from jaxmarl.registration import registered_envs
    except ImportError as error:
        raise EnvError(f"JaxMARL cannot be imported ({error}): pip install 'emu-marl[jaxmarl]'.") from error
    if target not in registered_envs:
        raise EnvError(f"JaxMARL has no environment '{target}'. {did_you_mean(target, registered_envs)}")
    try:
        return jaxmarl.make(target, **_resolved(target, args))
    except (TypeError, ValueError, ImportError) as error:
        raise EnvError(f"'jaxmarl:{target}' cannot be made from {args}: {error}") from error


def _resolved(target: str, args: dict[str, Any]) -> dict[str, Any]:
    """JaxMARL wants SMAX's scenarios and Overcooked's layouts as objects; here their names do."""
    from jaxmarl.environments.overcooked import overcooked_layouts
    from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

    known = {"scenario": MAP_NAME_TO_SCENARIO} if "SMAX" in target else {}
    if target == "overcooked":
        known = {"layout": overcooked_layouts}
    for argument, table in known.items():
        name = args.get(argument)
        if isinstance(name, str):
            if name not in table:
                raise EnvError(f"{target} has no {argument} '{name}'. {did_you_mean(name, table)}")
            args = {**args, argument: table[name]}
    return args
