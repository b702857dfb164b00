"""Failure modes that tests of other stages inject: which test, by name; and what is injected nowhere, and why."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]

ELSEWHERE = (
    ("2.1", "corrupt intent file is no empty one", "contract/haproxy/test_haproxy_point.py",
     "test_damaged_map_is_set_aside_and_the_process_is_the_copy"),
    ("2.1", "held for too long: 503, Retry-After, OpenAI form", "contract/haproxy/test_haproxy_routing.py",
     "test_hold_limit_is_503_with_retry_after"),
    ("2.1", "keep-alive connection follows the map", "contract/haproxy/test_haproxy_point.py",
     "test_keep_alive_client_follows_the_map"),
    ("2.1", "somebody else quiesces or readmits", "contract/gateways/test_anvil_gateway.py",
     "test_somebody_elses_readmit_is_seen_and_put_right"),
    ("2.2", "silent streams told from slow ones, and cut", "contract/haproxy/test_haproxy_requests.py",
     "test_stalled_streams_may_be_cut_although_live_ones_may_not"),
    ("2.2", "engine's gauge and gateway's count differ", "contract/haproxy/test_haproxy_requests.py",
     "test_an_engine_with_work_past_the_gateway_blocks_the_stop"),
    ("2.2", "count unknown", "contract/haproxy/test_haproxy_install.py",
     "test_count_that_cannot_be_read_is_unknown"),
    ("2.2", "one deadline for all inner waits of a drain", "unit/test_draining.py",
     "test_extend_waits_once_more_and_no_longer"),
    ("2.3", "rollback not startable, found before", "contract/test_way_back_simbox.py",
     "test_an_image_that_was_removed_behind_the_console"),
    ("2.3", "weights cut short", "contract/test_way_back_simbox.py", "test_weights_that_were_cut_short"),
    ("2.3", "orphan process on a card named by pid", "contract/test_ownership_simbox.py",
     "test_a_bare_process_is_named_by_pid_and_its_control_group"),
    ("2.3", "HAProxy's own check refuses the file", "contract/haproxy/test_haproxy_install.py",
     "test_bad_configuration_is_refused_and_the_old_one_serves"),
    ("2.3", "mixed generations in a flip", "contract/haproxy/test_haproxy_point.py",
     "test_flips_under_load_lose_and_mix_nothing"),
    ("2.3", "one failed probe decides nothing", "unit/test_operations.py",
     "test_one_slow_answer_does_not_reverse_a_decided_promotion"),
    ("2.3", "ambient variable against the file", "contract/test_child_env.py", ""),
    ("2.3", "credential rotated under load", "contract/haproxy/test_haproxy_rotation.py",
     "test_clients_stream_through_a_rotation_without_a_refused_request"),
    ("2.4", "stranger on the port of the way back", "contract/test_way_back_simbox.py",
     "test_a_stranger_on_the_port_of_the_way_back"),
    ("2.4", "an ended operation is not changed", "unit/test_operations.py",
     "test_halted_blocks_the_next_plan_and_can_be_taken_up_again"),
    ("3", "stale process of a generation before", "unit/test_two_operators.py", ""),
)  # fmt: skip

NOWHERE = (
    ("2.1", "proxy with several workers", "HAProxy runs with one thread, anvil-serving with one process"),
    ("2.2", "readiness known late by routers", "one gateway, read back before the next step"),
    ("2.3", "wedged while it serves, seen by verify", "three probes of 60 s each; the unit tests move the clock"),
    ("issue", "suspended host, stepped monotonic clock", "the kernel moves neither for one namespace"),
)


def text() -> str:
    """The lines under the matrix; a test that is not there any more is an error."""
    lines = ["injected by other stages:"]
    for source, what, file, name in ELSEWHERE:
        names = {n.name for n in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(n, ast.FunctionDef)}
        if name and name not in names:
            raise AssertionError(f"{file} has no {name}")
        lines.append(f"  {source:6} {what:52} {file}{'::' + name if name else ''}")
    lines += ["injected nowhere:", *(f"  {source:6} {what:52} {why}" for source, what, why in NOWHERE)]
    return "\n".join(lines)
