"""The gateway's and the standing screen: what they say of requests, ways back, owners, credentials, clients."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from rich.cells import cell_len

from anvil_tui.core.box import Capabilities, Gateway, Request
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.standing import Check, ClientState, CredentialState, DrillPhase, DrillRecord, Owner
from anvil_tui.core.world import DIGEST_LABEL, OPERATION_LABEL, RECIPE_LABEL, Readiness, World
from anvil_tui.ui.presenters import gateway, serves, standing
from anvil_tui.ui.presenters.cells import Panel, View
from tests.support import worlds

VIEW = View(zone=UTC)


def text(panel: Panel) -> str:
    return "\n".join([panel.title, *("".join(c.text for c in r.cells).rstrip() for r in panel.rows)])


def with_gateway(**change: object) -> World:
    world = worlds.calm()
    now = world.gateway.value
    assert now is not None
    changed = replace(now, **change)  # type: ignore[arg-type]
    return derive(replace(world, gateway=Reading.known(changed, worlds.NOW_S, "gateway")))


def detail(world: World, key: str, width: int = 100) -> str:
    return text(standing.detail_panel(world, replace(VIEW, standing=key), width, 30))


# the gateway


def test_each_request_is_told_by_what_its_bytes_prove_oldest_first() -> None:
    requests = (
        Request("0xa", "primary-b", 4.0, 900, 0.2),
        Request("0xb", "primary-b", 312.0, 18_200, 61.0),
        Request("0xc", "primary-b", 12.0, 120_000, 0.1),
        Request("0xd", "primary-b", 2.0, None, None),
    )
    lines = text(gateway.requests_panel(with_gateway(requests=requests), VIEW, 110, 20)).splitlines()
    assert lines[0] == "Requests in progress 4"
    assert [line.split()[1] for line in lines[2:]] == ["stalled", "flowing", "waiting", "unknown"]
    assert "5 min 12 s" in lines[2] and "18,200" in lines[2] and "58" in lines[2] and "1 min 01 s" in lines[2]
    assert lines[5].count("n/a") == 3


@pytest.mark.parametrize(("requests", "says"), [((), "Nothing is in flight"), (None, "cannot list them")])
def test_none_in_flight_and_not_listed_are_two_things(requests: tuple[Request, ...] | None, says: str) -> None:
    assert says in text(gateway.requests_panel(with_gateway(requests=requests), VIEW, 80, 20))


@pytest.mark.parametrize(
    ("aliases", "can", "says"),
    [
        ({"llm.primary": "primary-b"}, Capabilities(), "primary-b"),
        ({"llm.primary": "hold"}, Capabilities(), "held"),
        ({"llm.primary": "hold"}, Capabilities(holds=False), "quiesced: clients get 503"),
        ({"llm.primary": "none"}, Capabilities(), "nothing: clients get 503"),
        ({}, Capabilities(), "not in the gateway"),
    ],
)
def test_where_an_alias_points(aliases: dict[str, str], can: Capabilities, says: str) -> None:
    said = text(gateway.panel(with_gateway(aliases=aliases, can=can), VIEW, 110, 20))
    assert f"llm.primary → {says}" in said


def test_what_a_gateway_cannot_do_is_said() -> None:
    weak = Capabilities(atomic=False, holds=False, severs=False)
    said = " ".join(text(gateway.panel(with_gateway(can=weak), VIEW, 110, 20)).split())
    assert "they are not held" in said and "a request cannot be cut" in said and "with a restart" in said
    assert "nothing that a change needs" in text(gateway.panel(with_gateway(), VIEW, 110, 20))


def test_a_gateway_that_cannot_be_read_shows_no_figure() -> None:
    gone: Reading[Gateway] = Reading.error("connection refused", worlds.NOW_S, "haproxy")
    world = derive(replace(worlds.calm(), gateway=gone))
    said = text(gateway.panel(world, VIEW, 80, 20))
    assert "connection refused" in said and "primary-b" not in said
    assert "the gateway was not read" in text(gateway.requests_panel(world, VIEW, 80, 20))


def test_what_loads_in_a_slot_is_shown_there_not_what_was_recorded_there_before() -> None:
    world, known = worlds.calm(), worlds.recipes()
    fresh = known[worlds.INCUMBENT]
    aliases = world.workspace.roles[0].aliases
    made = worlds.container(
        fresh, id="c" * 64, argv=fresh.filled_argv(9131, aliases),
        labels={OPERATION_LABEL: "o", RECIPE_LABEL: fresh.id, DIGEST_LABEL: fresh.digest()},
    )  # fmt: skip
    seen = worlds.with_containers(world, made)
    row = next(t for t in text(gateway.panel(seen, VIEW, 110, 20)).splitlines() if t.split()[0] == "primary-a")
    assert fresh.id in row and "stopped" not in row


def test_figures_of_a_gateway_that_answers_no_more_are_called_old() -> None:
    last = with_gateway(requests=()).gateway.value
    gone: Reading[Gateway] = Reading.error("connection refused", worlds.NOW_S - 42, "haproxy", last)
    world = derive(replace(worlds.calm(), gateway=gone))
    said = text(gateway.panel(world, VIEW, 110, 20)).splitlines()
    assert said[1] == "cannot be read now: connection refused; what follows is 42 s old"
    assert "not known" in text(gateway.requests_panel(world, VIEW, 80, 20))


# standing


def with_checks(*checks: Check) -> World:
    missing = tuple(f"{c.name}: {c.why}" for c in checks if c.state in ("missing", "unknown"))
    world = worlds.calm()
    return replace(world, rollbacks={"primary": Readiness(worlds.CANDIDATE, missing, checks)})


def test_a_way_back_that_is_not_ready_names_why_in_list_and_detail() -> None:
    world = with_checks(
        Check("image", "ok", "here"),
        Check("weights", "missing", "model.gguf: 12 bytes, 40 recorded"),
        Check("port", "unknown", "not looked at yet"),
        Check("drill", "waived", "never drilled; waived"),
    )
    line = text(standing.list_panel(world, VIEW, 110, 40)).splitlines()[2]
    assert line.startswith("✖ primary") and "weights: model.gguf: 12 bytes" in line
    told = detail(world, "role:primary").splitlines()
    marks = {row[2:].split()[0]: row[0] for row in told if row[:1] in "✔✖?▲" and row.strip()}
    assert marks == {"image": "✔", "weights": "✖", "port": "?", "drill": "▲"}


def drill(**change: object) -> DrillRecord:
    phases = (
        DrillPhase("away", "hold", 0.2),
        DrillPhase("away", "verify", 40.8),
        DrillPhase("home", "verify", 39.0),
    )
    made = DrillRecord(
        "20260901T100000000-drill-ab12", "primary", worlds.at(86_400 * 3), "box", "a" * 64, "b" * 64, "restored",
        41.0, phases, home_s=39.0, incumbent_name=worlds.INCUMBENT, way_back_name=worlds.FALLBACK,
    )  # fmt: skip
    return replace(made, **change)  # type: ignore[arg-type]


def test_a_drill_stands_beside_the_way_back_with_its_age_and_time() -> None:
    world = replace(worlds.calm(), drills=(drill(),))
    listed = text(standing.list_panel(world, VIEW, 110, 40))
    assert "drill 3 d 00 h ago, back in 41 s" in listed
    assert "✔ primary  drill: restored" in listed
    told = detail(world, f"drill:{drill().operation}:{drill().at}")
    phases = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line[:1].isalpha()}
    assert phases["phase"] == ["away", "home"] and phases["hold"] == ["0.2", "s", "n/a"]
    assert phases["verify"] == ["40.8", "s", "39.0", "s"] and phases["answered"] == ["41.0", "s", "39.0", "s"]


def test_a_drill_that_left_a_difference_is_no_restored_one() -> None:
    world = replace(worlds.calm(), drills=(drill(outcome="differs", differences=("image was A, is B",)),))
    assert "▲ primary  drill: restored with 1 difference" in text(standing.list_panel(world, VIEW, 110, 40))
    assert "DIFFERS: image was A, is B" in detail(world, f"drill:{drill().operation}:{drill().at}")


def test_owners_credentials_and_clients_have_their_line_and_their_detail() -> None:
    world = replace(
        worlds.calm(),
        owners=(Owner(worlds.UUIDS[0], "process", "4711", "python3", "in no container", 1024),),
        credentials=(
            CredentialState("client", "env:KEY", "accepted", "environment variable KEY", "ab12cd34ef56"),
            CredentialState("pi", "file:k#X", "refused", "k: X", "ff12cd34ef56", why="401 Unauthorized"),
        ),
        clients=(ClientState("pi", "~/.pi/models.json", "drift", ("contextWindow: has 524288, serves 393216",)),),
    )
    listed = text(standing.list_panel(world, VIEW, 110, 40))
    assert "▲ GPU 0  python3" in listed and "○ GPU 1  nobody" in listed
    assert "✔ client  accepted" in listed and "✖ pi  refused" in listed
    assert "✖ pi  contextWindow: has 524288, serves 393216" in listed
    assert "pid 4711 python3 1,024 MiB in no container" in detail(world, f"gpu:{worlds.UUIDS[0]}")
    assert "401 Unauthorized" in detail(world, "credential:pi")
    assert "serves 393216" in detail(world, "client:pi")


def test_keys_are_of_what_they_name_and_rows_fit() -> None:
    world = replace(worlds.calm(), drills=(drill(),))
    for width in (58, 78, 118):
        panel = standing.list_panel(world, VIEW, width, 40)
        assert all(sum(cell_len(c.text) for c in r.cells) <= width for r in panel.rows)
        assert {r.key.partition(":")[0] for r in panel.rows} >= {"role", "gpu", "drill", ""}


def test_the_overview_says_when_the_way_back_was_last_walked() -> None:
    world = replace(worlds.calm(), drills=(drill(),))
    back = next(s for s in world.serves if s.position == "rollback")
    assert "ready ✔, drill 3 d 00 h ago, back in 41 s" in "".join(c.text for c in serves.place(world, back))
