"""The guards of what a user or a folder may say: names of code, and inputs that cannot be right."""

from __future__ import annotations

from attack.guard import LOW, Guard

PAYLOADS, COMMANDS, SETTINGS, SURROUNDINGS, RESULTS = (
    f"tests/attack/test_{name}.py::test_"
    for name in ("payloads", "commands", "settings", "surroundings", "result_files")
)
TRUST, SESSION = "tests/run/test_trust.py::test_", "tests/training/test_session.py::test_"
TABLES = "tests/study/analysis/test_tables.py::test_"

NAMED_CODE = (
    Guard(
        1,
        "module:Name must be an environment",
        "envs/registry.py",
        "    if not (is_environment(found) or makes_environment(found)):\n",
        "    if False:\n",
        (f"{PAYLOADS}even_trusted_what_is_no_such_piece_is_not_called[os.system]",),
    ),
    Guard(
        1,
        "a learner, term or logger must be one",
        "registry.py",
        "        if not (isinstance(found, type) and issubclass(found, base)):\n",
        "        if False:\n",
        (
            f"{PAYLOADS}even_trusted_what_is_no_such_piece_is_not_called[learner, os.system]",
            f'{COMMANDS}a_training_that_cannot_be_is_refused_by_name[--loggers {{"os:system":{{}}}}]',
        ),
    ),
    Guard(
        1,
        "what an adapter imports must be an environment",
        "envs/registry.py",
        "    if not fits:\n",
        "    if False:\n",
        (f"{PAYLOADS}even_trusted_what_is_no_such_piece_is_not_called[pymarl, os.system]",),
    ),
    Guard(
        1,
        "a folder that names code asks for trust",
        "run/trust.py",
        "    if not trust and (names := outside(config)):\n",
        "    if not trust and (names := []):\n",
        (
            f"{PAYLOADS}whatever_would_build_it_asks_for_trust[a module of one's own-evaluate]",
            f"{PAYLOADS}an_exported_team_asks_for_trust[a module of one's own]",
        ),
    ),
    Guard(
        1,
        "names deep inside the settings count",
        "run/trust.py",
        "IMPORTED.fullmatch(text)]\n",
        "IMPORTED.fullmatch(text) and False]\n",
        (f"{PAYLOADS}the_python_api_asks_for_trust[learner-load]", f"{TRUST}arguments_are_looked_through[args2-1]"),
    ),
    Guard(
        1,
        "another's cluster asks for trust",
        "run/trust.py",
        '    if config.rollout.where == "ray" and config.rollout.cluster not in HERE:\n',
        "    if False:\n",
        (f"{TRUST}a_cluster_elsewhere_is_from_outside_and_ones_own_is_not",),
    ),
    Guard(
        1,
        "resume asks for trust",
        "training/session.py",
        "    require_trusted(folder, config, trust)\n",
        "",
        (
            f"{PAYLOADS}whatever_would_build_it_asks_for_trust[a module of one's own-resume]",
            f"{SESSION}a_trusted_folder_is_resumed",
        ),
    ),
    Guard(
        1,
        "loading a team asks for trust",
        "run/team.py",
        "    require_trusted(folder, config, trust)\n",
        "",
        (f"{PAYLOADS}the_python_api_asks_for_trust[a module of one's own-load]",),
    ),
    Guard(
        1,
        "a report takes no snapshot with foreign code",
        "training/snapshots.py",
        "    require_registered(run, config)\n",
        "",
        (f"{PAYLOADS}looking_at_a_run_executes_nothing[learner-report]",),
    ),
    Guard(
        1,
        "a report draws registered environments only",
        "study/report/memories.py",
        "    if shown.run.env not in envs.registered():\n        return None\n",
        "",
        (f"{PAYLOADS}a_report_builds_no_environment_but_registered_ones[snapshot-an adapter]",),
    ),
    Guard(
        1,
        "a report asks before it draws with arguments",
        "study/report/memories.py",
        "        require_registered(shown.run.folder, shown.run.config)\n",
        "",
        (f"{PAYLOADS}a_report_builds_no_environment_but_registered_ones[snapshot-an argument]",),
    ),
    Guard(
        1,
        "a report takes snapshots of registered ones only",
        "study/report/memories.py",
        '    if shown.run.env not in envs.registered():\n        warn(f"The memory',
        '    if False:\n        warn(f"The memory',
        (f"{PAYLOADS}a_report_builds_no_environment_but_registered_ones[checkpoint-an adapter]",),
    ),
    Guard(
        1,
        "a table asks registered environments only",
        "study/analysis/tables.py",
        "    if config.env not in envs.registered():\n",
        "    if False:\n",
        (f"{TABLES}a_table_runs_nobodys_code",),
    ),
    Guard(
        1,
        "a plot of memories builds nothing foreign",
        "study/figures/embedding.py",
        "    require_registered(run, config)\n",
        "",
        (f"{PAYLOADS}a_picture_of_its_memory_executes_nothing[a module of one's own]",),
    ),
)

INPUTS = (
    Guard(
        LOW,
        "[/bold] in a message is no markup",
        "cli/output.py",
        "[bold red]error[/] {escape(str(error))}",
        "[bold red]error[/] {str(error)}",
        (f"{COMMANDS}names_with_markup_are_printed_as_they_are",),
    ),
    Guard(
        LOW,
        "episodes are at least one and not too many",
        "bounds.py",
        "    if not 1 <= episodes <= MOST_EPISODES:\n",
        "    if False:\n",
        (f"{COMMANDS}a_command_that_cannot_be_is_refused_by_name[play gridworld --episodes=-5]",),
    ),
    Guard(
        LOW,
        "a huge range of seeds is refused",
        "study/plan/plans.py",
        "        if len(seeds) + last - first >= MOST_SEEDS:\n",
        "        if False:\n",
        (f"{COMMANDS}seeds_that_cannot_be_are_refused_by_name[0-10000]",),
    ),
    Guard(
        LOW,
        "a path that is too long is refused",
        "files.py",
        "    if len(text) > LONGEST_PATH or any(",
        "    if False and any(",
        (
            f"{SESSION}a_name_too_long_for_the_disk_is_explained[name0]",
            f"{SESSION}a_name_too_long_for_the_disk_is_explained[name1]",
        ),
    ),
    Guard(
        LOW,
        "a run that the machine cannot hold is refused",
        "training/budget.py",
        "    if total > available:\n",
        "    if False:\n",
        (f"{SETTINGS}a_run_that_just_fits_is_taken_and_one_byte_less_is_not",),
    ),
    Guard(
        LOW,
        "a terminal that shows ASCII only is served",
        "cli/app.py",
        '            stream.reconfigure(errors="backslashreplace")\n',
        "            pass\n",
        (f"{SURROUNDINGS}a_terminal_that_shows_ascii_only_is_no_reason_to_fail[words0]",),
    ),
    Guard(
        LOW,
        "a broken run is left out and named",
        "study/analysis/runs.py",
        "        if warn is None:\n            raise\n",
        "        raise\n",
        (f"{RESULTS}a_file_of_a_run_with_any_content_costs_that_run_at_most[config.json-cut]",),
    ),
)

WORDS = (*NAMED_CODE, *INPUTS)
