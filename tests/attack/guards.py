"""Every guard that keeps a known fault away, with the tests that fail without it.

The numbers are those of the thirteen faults that an attack once found; LOW are bad inputs, which have none:

    1 code that a folder names        6 arrays that a kernel sees         11 the memory as a library
    2 a run wiped by a resume         7 a seed that an environment fails  12 `emu check` and a hostile environment
    3 paths and reading back          8 saving when a terminal closes     13 processes that outlive a run
    4 a flipped bit in the replay     9 other people's files
    5 a bad byte in the metrics      10 the best team, changed settings

`python scripts/take_guards_out.py` takes them out, one at a time.
"""

from __future__ import annotations

from attack.guard import LOW, Guard
from attack.guards_of_runs import RUNS
from attack.guards_of_words import WORDS

__all__ = ["GUARDS", "LOW", "Guard"]

ROBUSTNESS, INDEX = (f"tests/memory/test_{name}.py::test_" for name in ("robustness", "index"))
TAMPERED = f"{ROBUSTNESS}a_tampered_array_is_refused_and_changes_nothing"
ENVIRONMENTS, RUN_FILES = (f"tests/attack/test_{name}.py::test_" for name in ("environments", "run_files"))
SEGMENTS = "tests/run/test_segments.py::test_"
POOL, WORKERS = "tests/envs/workers/test_pool.py::test_", "tests/play/test_workers.py::test_"
RUNAWAY = f"{POOL}programs_that_left_the_group_end_with_their_worker"
CHECKED = f"{ENVIRONMENTS}an_environment_that_harms_its_process_is_described"

MEMORY = (
    Guard(
        6,
        "the order of use names every entry once",
        "memory/storage.py",
        "    if not (inside.all() and seen.all()):\n",
        "    if False:\n",
        (f"{TAMPERED}[order out of range]", f"{TAMPERED}[order far out]", f"{TAMPERED}[order twice]"),
    ),
    Guard(
        6,
        "stored arrays have the wanted type and shape",
        "memory/storage.py",
        "    if array.dtype != dtype or not fits:\n",
        "    if False:\n",
        (
            f"{TAMPERED}[order of floats]",
            f"{TAMPERED}[states of another type]",
            f"{TAMPERED}[returns of another length]",
        ),
    ),
    Guard(
        6,
        "stored numbers are finite",
        "memory/storage.py",
        '    if not all(_finite(arrays[name]) for name in ("states", "embeddings", "best_return")):\n',
        "    if False:\n",
        (f"{TAMPERED}[states not finite]", f"{TAMPERED}[returns not finite]"),
    ),
    Guard(
        6,
        "stored visits are possible",
        "memory/storage.py",
        "    if not ((visits >= 1) & (desirable_visits >= 0) & (desirable_visits <= visits)).all():\n",
        "    if False:\n",
        (f"{TAMPERED}[no visits]", f"{TAMPERED}[more desirable visits than visits]"),
    ),
    Guard(
        6,
        "a mask has the shape of the states",
        "memory/episodic.py",
        "        if wanted.shape != shape:\n",
        "        if False:\n",
        (f"{ROBUSTNESS}a_mask_of_another_shape_is_refused[mask0]",),
    ),
    Guard(
        6,
        "entry numbers lie within the index",
        "memory/index.py",
        "        if len(ids) and not (ids.min() >= 0 and ids.max() < self.capacity):",
        "        if False:",
        (f"{ROBUSTNESS}numbers_that_are_no_entry_are_refused_before_they_are_cut_to_32_bits[ids0]",),
    ),
    Guard(
        6,
        "an entry that is removed is there",
        "memory/index.py",
        "        if len(missing):\n",
        "        if False:\n",
        (f"{INDEX}misuse_says_what_is_wrong",),
    ),
    Guard(
        6,
        "entries that are read exist",
        "memory/episodic.py",
        '        if rows.size and not (rows.dtype.kind in "iu" and rows.min() >= 0 and rows.max() < len(self)):\n',
        "        if False:\n",
        (f"{ROBUSTNESS}rows_beyond_the_entries_are_refused",),
    ),
    Guard(
        6,
        "episodes of a checkpoint are as long as they say",
        "run/segments.py",
        "    _require_whole(arrays)\n",
        "",
        (
            f"{SEGMENTS}episodes_that_are_not_what_their_lengths_say_are_refused[negative lengths]",
            f"{SEGMENTS}episodes_that_are_not_what_their_lengths_say_are_refused[too few rewards]",
        ),
    ),
    Guard(
        6,
        "episodes of a checkpoint fit the environment",
        "run/checkpoint.py",
        "        require_fitting(episodes, replay.spec)\n",
        "",
        (f"{RUN_FILES}episodes_of_any_shape_and_type_are_refused_or_gone_on_with[obs-text]",),
    ),
    Guard(
        6,
        "unfinished episodes fit the environment",
        "play/slots.py",
        "        if not fits or (",
        "        if False and (",
        (f"{RUN_FILES}unfinished_episodes_of_any_shape_and_type_are_refused_or_gone_on_with[other shape]",),
    ),
    Guard(
        6,
        "every part of a checkpoint's state is checked",
        "run/checkpoint.py",
        "        check(state)\n",
        "",
        (f"{RUN_FILES}a_tampered_state_is_refused_or_gone_on_with[counters.owed]",),
    ),
    Guard(
        11,
        "a save never writes over the older one",
        "memory/storage.py",
        "    number = max(_files(folder).values(), default=0) + 1\n",
        "    number = 1\n",
        (f"{ROBUSTNESS}a_save_that_fails_half_way_leaves_the_older_one",),
    ),
    Guard(
        11,
        "a save removes no arrays but its own",
        "memory/storage.py",
        "    found = ((path, OURS.fullmatch(path.name)) for path in folder.iterdir())\n",
        "    found = ((path, re.fullmatch(r'(.*)-(.*)\\.npy', path.name)) for path in folder.iterdir())\n"
        "    return {path: 0 for path, match in found if match}\n",
        (f"{ROBUSTNESS}a_save_removes_nothing_but_older_saves",),
    ),
    Guard(
        11,
        "a failing encoder leaves the embeddings",
        "memory/episodic.py",
        "            new = np.empty_like(new)\n",
        "",
        (f"{ROBUSTNESS}a_failing_encoder_leaves_the_memory_as_it_was[too far apart]",),
    ),
    Guard(
        11,
        "keys are finite",
        "memory/normalisation.py",
        "        if not finite(keys):\n",
        "        if False:\n",
        (
            f"{ROBUSTNESS}a_failing_encoder_leaves_the_memory_as_it_was[too far apart]",
            f"{TAMPERED}[a spread that makes keys infinite]",
        ),
    ),
    Guard(
        11,
        "no spread is subnormal",
        "memory/normalisation.py",
        "np.where(floor > 0, floor, 1)), TINY)\n",
        "np.where(floor > 0, floor, 1)), 0)\n",
        (
            f"{ROBUSTNESS}any_spread_gives_finite_keys_under_which_every_state_finds_itself[True-1e-45]",
            f"{ROBUSTNESS}a_dimension_that_says_nothing_beside_a_tiny_one_is_not_divided_by_zero[1e-42]",
        ),
    ),
    Guard(
        11,
        "gamma lies between 0 and 1",
        "memory/episodic.py",
        "        if not state_dim >= 1 or not 0 <= gamma <= 1:\n",
        "        if not state_dim >= 1:\n",
        (
            f"{ROBUSTNESS}a_discount_outside_0_and_1_is_refused[nan]",
            f"{ROBUSTNESS}a_discount_outside_0_and_1_is_refused[2.0]",
        ),
    ),
    Guard(
        11,
        "rewards fit into float32",
        "memory/episodes.py",
        "    if not (rewards.dot(rewards) <= LARGEST_REWARD**2 or np.all(np.abs(rewards) <= LARGEST_REWARD)):\n",
        "    if False:\n",
        (f"{ROBUSTNESS}rewards_whose_return_float32_cannot_hold_are_refused[1e+300]",),
    ),
    Guard(
        11,
        "two threads at once are refused",
        "memory/_guard.py",
        "    return guarded  # type: ignore[return-value]\n",
        "    return method\n",
        (f"{ROBUSTNESS}a_second_thread_is_refused_while_a_call_is_under_way",),
    ),
)

PROCESSES = (
    Guard(
        7,
        "a seed that fails again is replaced",
        "play/workers.py",
        "        if number in self.suspects:\n",
        "        if False:\n",
        (f"{WORKERS}an_evaluation_seed_that_always_fails_is_replaced_counted_and_costs_no_other_episode",),
    ),
    Guard(
        7,
        "replaced seeds are counted",
        "play/workers.py",
        "        self.replaced_seeds += queue.replaced\n",
        "",
        (f"{WORKERS}an_evaluation_seed_that_always_fails_is_replaced_counted_and_costs_no_other_episode",),
    ),
    Guard(
        7,
        "a suspect plays alone on its worker",
        "play/workers.py",
        "        if self.suspects.isdisjoint(others):\n            for number in self.waiting:\n"
        "                if not others or number not in self.suspects:\n"
        "                    self.waiting.remove(number)\n                    return number\n",
        "        if self.waiting:\n            return self.waiting.popleft()\n",
        (f"{WORKERS}an_evaluation_seed_that_always_fails_is_replaced_counted_and_costs_no_other_episode",),
    ),
    Guard(
        12,
        "emu check uses a process of its own",
        "cli/environments.py",
        "    verdict = check_in_process(env, env_args or {}, episodes, limits)\n",
        "    from emu import envs\n    from emu.envs.check import check_env\n"
        "    from emu.envs.check_process import Verdict\n"
        "    check_env(envs.make(env, **(env_args or {})), episodes)\n    verdict = Verdict(env, [], [])\n",
        (f"{CHECKED}[leaves]", f"{CHECKED}[crashes]"),
    ),
    Guard(
        12,
        "a call that does not come back is ended",
        "envs/check_process.py",
        "                if now - heard > self.limits.call or now - begun > self.limits.total:\n",
        "                if False:\n",
        (f"{ENVIRONMENTS}a_check_that_takes_too_much_is_ended_and_described[a call]",),
    ),
    Guard(
        12,
        "memory without limit is not given",
        "envs/check_process.py",
        "                if now - looked > POLL and (looked := now) and self._takes_too_much():\n",
        "                if False:\n",
        (f"{ENVIRONMENTS}a_check_that_takes_too_much_is_ended_and_described[memory]",),
    ),
    Guard(
        12,
        "an environment that forks is told so",
        "envs/check_process.py",
        '        if message["pid"] != self.pid:\n',
        "        if False:\n",
        (f"{CHECKED}[forks]",),
    ),
    Guard(
        12,
        "sys.exit in an environment is a fault",
        "envs/check.py",
        "RAISED = (Exception, SystemExit)",
        "RAISED = (Exception,)",
        (f"{ENVIRONMENTS}a_wrong_python_environment_is_told_its_fault[step exits]",),
    ),
    Guard(
        12,
        "observations of 1e300 are named",
        "envs/faults.py",
        "    elif (outside := _unfit(value, np.dtype(kind))).any():\n",
        "    elif (outside := np.zeros(1, bool)).any():\n",
        (f"{ENVIRONMENTS}a_wrong_python_environment_is_told_its_fault[obs 1e300]",),
    ),
    Guard(
        12,
        "n_agents=2.0 is named",
        "envs/faults.py",
        "        if field.name in WHOLE and (isinstance(value, bool) or not isinstance(value, int)):\n",
        "        if False:\n",
        (f"{ENVIRONMENTS}a_wrong_specification_is_told_its_fault[agents 2.0]",),
    ),
    Guard(
        12,
        "rewards of the wrong type are named",
        "envs/faults.py",
        "    faults = [Fault(fault, ends_episode=True)] if fault else []\n",
        "    faults = []\n",
        (
            f"{ENVIRONMENTS}a_wrong_python_environment_is_told_its_fault[reward text]",
            f"{ENVIRONMENTS}a_wrong_python_environment_is_told_its_fault[reward each]",
        ),
    ),
    Guard(
        13,
        "orphans of a worker are adopted",
        "envs/workers/guardian.py",
        "    control(PR_SET_CHILD_SUBREAPER, 1)\n",
        "",
        (f"{RUNAWAY}[daemon]",),
    ),
    Guard(
        13,
        "what a worker started ends with it",
        "envs/workers/guardian.py",
        "    end_group(worker)\n    end_descendants(os.getpid())\n",
        "    end_group(worker)\n",
        (f"{RUNAWAY}[setsid]", f"{POOL}programs_of_a_worker_that_is_replaced_end_with_it"),
    ),
    Guard(
        13,
        "a stopped guardian is woken, or ended with all",
        "envs/workers/guarded.py",
        "            with contextlib.suppress(ProcessLookupError, PermissionError):\n"
        "                os.kill(self.process.pid, signal.SIGCONT)  # it may have been stopped\n"
        "            if self.wait(guardian.PATIENCE + GRACE) is None:\n"
        "                guardian.end_descendants(self.process.pid)\n"
        "                self.process.kill()\n"
        "        self.process.wait()\n",
        "            self.wait(GRACE)\n",
        (f"{POOL}a_stopped_worker_ends_with_its_pool[guardian]",),
    ),
    Guard(
        13,
        "what the run itself started ends with it",
        "envs/workers/guardian.py",
        "    if status is None:\n        end_others(also)\n",
        "",
        (f"{POOL}no_program_outlives_a_killed_supervisor[make-setsid]",),
    ),
    Guard(
        13,
        "a finished run ends what making it had started",
        "training/loop.py",
        "            end_noted_processes()\n",
        "            pass\n",
        (f"{ENVIRONMENTS}what_an_environment_starts_when_it_is_made_ends_with_the_run[daemon]",),
    ),
    Guard(
        13,
        "what a failed constructor started is ended",
        "envs/started.py",
        "        if failed:\n",
        "        if False:\n",
        (f"{ENVIRONMENTS}what_cannot_be_made_is_told_why[daemon]",),
    ),
)

GUARDS = tuple(sorted((*WORDS, *RUNS, *MEMORY, *PROCESSES), key=lambda guard: guard.item or 99))
