"""Catalogs against what serves, and operations that write them, on a box in memory with real files. O-91."""

from __future__ import annotations

import dataclasses
import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from anvil_tui.core.box import Engine
from anvil_tui.core.clients import Client, compared, promised, serving
from anvil_tui.core.errors import NoCredential, Refused, Unreachable
from anvil_tui.core.reading import Reading
from anvil_tui.core.routing import Way
from anvil_tui.core.serves import derive
from anvil_tui.core.standing import ClientState
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.service.clients import client_states
from anvil_tui.ui import policies
from anvil_tui.ui.policies import Target
from tests.support import worlds
from tests.support.membox import World, recipe

CONTEXT, OUTPUT = "models[id={alias}].contextWindow", "models[id={alias}].maxTokens"
FILE = {
    "token": "pl4nted-private",
    "models": [
        {"id": "llm.primary", "contextWindow": 524288, "maxTokens": 256, "mine": 1},
        {"id": "llm.secondary"},
    ],
}
AT = "2026-11-29T00:00:00Z"
ENGINE = Engine("llamacpp", "ready", served=("a",), context_tokens=2048)
WAYS = {"llm.primary": Way("http://gw/llm.primary", "a")}


def client(name: str = "pi", **more: Any) -> Client:
    fields: dict[str, Any] = {
        "name": name, "file": f"{name}.json", "format": "json", "role": "primary", "aliases": ("llm.primary",),
        "entries": {CONTEXT: "{context_tokens}", OUTPUT: "{max_output_tokens}"},
    }  # fmt: skip
    return Client.model_validate(fields | more)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """`a` serves 2,048 tokens; client `pi` believes 524,288."""
    made = World(tmp_path, recipe("a"), recipe("b", envelope={
        "context_tokens": 1024, "max_output_tokens": 128, "concurrency": 2,
    }))  # fmt: skip
    assert made.do("promote", recipe="a") == "done"
    return with_clients(made, client())


def with_clients(world: World, *clients: Client) -> World:
    settings = world.box.workspace.model_copy(update={"clients": clients})
    world.box = dataclasses.replace(world.box, workspace=settings)
    for c in clients:
        if not c.host:
            (world.tmp / c.file).write_text(json.dumps(FILE, indent=2) + "\n")
    return world


def residue(world: World) -> list[str]:
    ends = [r for r in world.box.operations.journal(world.last).records() if r.kind == "end"]
    return list(ends[-1].data["residue"])


def context(world: World, name: str = "pi") -> int:
    return int(json.loads((world.tmp / f"{name}.json").read_text())["models"][0]["contextWindow"])


# what serves


def test_the_smaller_of_what_is_promised_and_what_the_engine_says() -> None:
    assert serving("r", recipe("a"), dataclasses.replace(ENGINE, context_tokens=1500), WAYS).context_tokens == 1500
    assert serving("r", recipe("a"), dataclasses.replace(ENGINE, context_tokens=9999), WAYS).context_tokens == 2048
    assert serving("r", recipe("a"), dataclasses.replace(ENGINE, context_tokens=None), WAYS).context_tokens == 2048


@pytest.mark.parametrize(
    ("made", "engine", "why"),
    [
        (None, ENGINE, "nothing serves r"),
        (recipe("a"), None, "a does not answer"),
        (recipe("a"), dataclasses.replace(ENGINE, http="error", reason="HTTP 500"), "a does not answer: HTTP 500"),
        (recipe("a"), dataclasses.replace(ENGINE, served=("z",)), "the engine serves z, not a"),
    ],
)
def test_what_does_not_answer_as_itself_makes_everything_unknown(made: Any, engine: Any, why: str) -> None:
    found = compared(client(), ["llm.primary"], serving("r", made, engine, WAYS), json.dumps(FILE).encode(), AT)
    assert found.state.state == "unknown" and why in found.state.why
    assert not found.drifts and found.after == ""


def test_a_fact_that_is_not_known_overwrites_nothing() -> None:
    now = dataclasses.replace(promised(recipe("a"), WAYS), max_output_tokens=None)
    found = compared(client(), ["llm.primary"], now, json.dumps(FILE).encode(), AT)
    assert found.state.differences == ("models[id=llm.primary].contextWindow: has 524,288, serves 2,048",)
    assert "maxTokens" in found.state.why and [key for key, _ in found.entries] == [
        "models[id=llm.primary].contextWindow"
    ]


def test_facts_take_their_own_type_and_entries_count_for_each_alias() -> None:
    made = recipe("a", thinking="on", envelope={
        "context_tokens": 2048, "max_output_tokens": 256, "concurrency": 2, "images": 3,
    })  # fmt: skip
    entries = {
        'p."{alias}".url': "{base_url}", 'p."{alias}".input': "{inputs}", "on": "{thinking}",
        "n": "{images} of {recipe}", "fixed": 5, "list": ("{served_name}", "x"), "m": "{model}",
    }  # fmt: skip
    ways = {a: Way(f"http://gw/{a}", f"m-{a}") for a in ("one", "two")}
    found = compared(client(aliases=(), entries=entries), ["one", "two"], promised(made, ways), b"{}", AT)
    assert dict(found.entries) == {
        "p.one.url": "http://gw/one/v1", "p.two.url": "http://gw/two/v1", "p.one.input": ["text", "image"],
        "p.two.input": ["text", "image"], "on": True, "n": "3 of a", "fixed": 5, "list": ["a", "x"], "m": "m-one",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (NoCredential("ssh mini: no credential: Permission denied"), "no-credential"),
        (Unreachable("ssh mini", "no answer in time", 5), "unreachable"),
        (b"{ // note\n}", "unreadable"),
        (json.dumps(FILE).encode(), "drift"),
    ],
)
def test_how_a_client_is(raw: Any, state: str) -> None:
    assert compared(client(), ["llm.primary"], promised(recipe("a"), WAYS), raw, AT).state.state == state


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"entries": {}}, "entries needs at least one"),
        ({"entries": {"a..b": 1}}, "no key path"),
        ({"entries": {"a": "{contex_tokens}"}}, "nearest {context_tokens}"),
        ({"entries": {"a.b": "x"}, "format": "env"}, "plain names only"),
        ({"host": "-oProxyCommand=x"}, "where ssh goes"),
        ({"host": "mini", "file": "rel.json"}, "file must be absolute"),
    ],
)
def test_a_client_that_cannot_work_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as why:
        client(**more)
    assert says in str(why.value)


def test_example_fragments_make_the_clients_whole() -> None:
    """Each fragment of docs/clients against a file of that client's shape: drift, then nothing."""
    shapes = {
        "pi": '{"providers": {"anvil-llm.primary": {"baseUrl": "x", "api": "openai-completions", "models": [\n'
        '  {"id": "a", "contextWindow": 524288, "maxTokens": 8192}\n]}}}\n',
        "openclaw": '{"models": {"providers": {"anvil": {"models": [\n'
        '  {"id": "llm.primary", "contextWindow": 1}\n]}}}}',
        "hermes": "# keys\nOPENROUTER_API_KEY=pl4nted-private\nANVIL_CONTEXT=524288\n",
    }
    folder = Path(__file__).parents[2] / "docs" / "clients"
    assert {p.stem for p in folder.glob("*.toml")} == set(shapes)
    for name, text in shapes.items():
        raw = tomllib.loads((folder / f"{name}.toml").read_text())["clients"][0]
        one = Client.model_validate({**raw, "aliases": tuple(raw.get("aliases", ()))})
        found = compared(one, ["llm.primary"], promised(recipe("a"), WAYS), text.encode(), AT)
        assert found.state.state == "drift", found.state
        assert any(d.endswith(("serves 2,048", "serves 2048")) for d in found.state.differences)
        assert "pl4nted" not in found.diff and "2048" in found.diff


# operations


def test_apply_writes_what_serves_and_a_second_preview_is_empty(world: World) -> None:
    before = (world.tmp / "pi.json").read_bytes()
    made = world.plan("apply", target="pi")
    assert [s.name for s in made.steps] == ["copy-pi", "write-pi", "preview", "decide", "clients"]
    assert '-      "contextWindow": 524288,\n+      "contextWindow": 2048,' in made.details[0]
    assert "pl4nted" not in json.dumps(made.to_json())
    text = f'{{"models": [\n{{"id": "llm.primary", "note": "{world.key}"}}]}}'
    (world.tmp / "pi.json").write_text(text)
    assert "***" in world.plan("apply").details[0] and world.key not in json.dumps(world.plan("apply").to_json())
    (world.tmp / "pi.json").write_bytes(before)
    assert world.do("apply", target="pi") == "done"
    assert context(world) == 2048 and residue(world) == []
    copy = world.tmp / "clients" / "pi" / world.last
    assert copy.read_bytes() == before and stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert world.plan("apply").refusals == ("nothing to do: every client is converged",)


def test_every_kill_point_of_apply_ends_as_its_decision_says(world: World) -> None:
    before = (world.tmp / "pi.json").read_bytes()
    assert world.do("apply") == "done"
    points = list(world.points)
    assert len(points) >= 15
    for point in points:
        (world.tmp / "pi.json").write_bytes(before)
        assert world.do("apply", kill_at=point) in ("killed", "done")
        assert world.operate("resume") in ("done", "undone")
        good = world.decision() == "forward"
        assert (context(world) == 2048) is good, point
        assert good or (world.tmp / "pi.json").read_bytes() == before


def test_a_file_that_somebody_changed_is_never_overwritten(world: World) -> None:
    """O-91: between the preview and the plan's start, between copy and write, and before the way back."""
    made = world.plan("apply")
    (world.tmp / "pi.json").write_text('{"theirs": 1}\n')
    assert world.plan("apply").hash != made.hash

    with_clients(world, client())
    theirs = b'{"models": []}'
    real = world.controls.files.replace

    def late(host: str, path: str, data: bytes, expected: str) -> None:
        (world.tmp / path).write_bytes(theirs)
        real(host, path, data, expected)

    world.controls.files.replace = late  # type: ignore[method-assign]
    assert world.do("apply") == "undone"
    world.controls.files.replace = real  # type: ignore[method-assign]
    assert (world.tmp / "pi.json").read_bytes() == theirs
    assert residue(world) == ["client pi: pi.json was changed by somebody else meanwhile; it is left as it is"]


def test_a_failing_client_puts_every_other_one_back(world: World) -> None:
    with_clients(world, client("pi"), client("two"))
    real = world.controls.files.replace

    def second_fails(host: str, path: str, data: bytes, expected: str) -> None:
        if path == "two.json":
            raise Refused("two.json: the disk says no")
        real(host, path, data, expected)

    world.controls.files.replace = second_fails  # type: ignore[method-assign]
    assert world.do("apply") == "undone"
    assert (context(world, "pi"), context(world, "two")) == (524288, 524288)


def test_two_clients_may_share_a_file(world: World) -> None:
    """One file of a client that knows several of our roles: applied whole, or put back whole."""
    with_clients(
        world,
        client("one", file="both.json", entries={CONTEXT: "{context_tokens}"}),
        client("two", file="both.json", entries={"tier": "{recipe}"}),
    )
    before = (world.tmp / "both.json").read_bytes()
    real, calls = world.controls.files.replace, []

    def second_fails(host: str, path: str, data: bytes, expected: str) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise Refused("both.json: the disk says no")
        real(host, path, data, expected)

    world.controls.files.replace = second_fails  # type: ignore[method-assign]
    assert world.do("apply") == "undone"
    assert (world.tmp / "both.json").read_bytes() == before and residue(world) == []
    world.controls.files.replace = real  # type: ignore[method-assign]
    for point in ("write-one:acted", "write-two:acted"):
        assert world.do("apply", kill_at=point) == "killed"
        assert world.operate("resume") == "undone"
        assert (world.tmp / "both.json").read_bytes() == before and residue(world) == [], point
    assert world.do("apply") == "done"
    made = json.loads((world.tmp / "both.json").read_text())
    assert (made["models"][0]["contextWindow"], made["tier"]) == (2048, "a")
    assert world.plan("apply").refusals == ("nothing to do: every client is converged",)


class Closed:
    """Files of this machine, and a host that lets nobody in."""

    def __init__(self, world: World) -> None:
        self.here = world.box.files

    def read(self, host: str, path: str) -> bytes:
        if host:
            raise NoCredential(f"ssh {host}: no credential: Permission denied (publickey)")
        return self.here.read(host, path)


def test_a_host_without_credential_is_recorded_as_not_converged(world: World) -> None:
    with_clients(world, client("pi"), client("far", host="mini", file="~/far.json"))
    world.box = dataclasses.replace(world.box, files=Closed(world))
    assert any("client far is not converged: no credential" in w for w in world.plan("apply").warnings)
    assert world.do("apply") == "done"
    assert context(world) == 2048
    assert [r for r in residue(world) if r.startswith("client far is not converged: no credential")]
    assert "client far is not converged: no credential" in world.plan("apply", target="far").refusals[0]


def test_a_promotion_says_before_and_after_which_catalogs_are_wrong(world: World) -> None:
    assert world.do("apply") == "done"
    made = world.plan("promote", recipe="b")
    said = (
        "afterwards client pi drifts: models[id=llm.primary].contextWindow: has 2,048, serves 1,024 (and 1 more)"
    )
    assert f"{said}; `apply pi` then" in made.warnings and made.steps[-1].name == "clients"
    with_hosts = [*world.box.workspace.clients, client("far", host="mini", file="/far.json")]
    settings = world.box.workspace.model_copy(update={"clients": tuple(with_hosts)})
    world.box = dataclasses.replace(world.box, workspace=settings, files=Closed(world))
    assert any("client far is not known" in w for w in world.plan("promote", recipe="b").warnings)
    assert world.do("promote", recipe="b") == "done"
    pi, far = residue(world)
    assert pi.startswith("client pi drifts: models[id=llm.primary].contextWindow: has 2,048, serves 1,024")
    assert far.startswith("client far is not converged: no credential")
    assert world.do("rollback") == "done"
    assert [r for r in residue(world) if "client pi" in r] == []


def test_a_drift_is_a_problem_with_its_remedy_and_stands_in_status() -> None:
    drift = ClientState("pi", "~/m.json", "drift", ("m[id=x].ctx: has 524,288, serves 393,216", "two"), "", AT)
    states = (
        drift, ClientState("far", "mini:~/m.json", "no-credential", (), "ssh mini: no credential: denied", AT),
        ClientState("ok", "a", "converged", (), "", AT), ClientState("new", "b", "unknown", (), "not read"),
    )  # fmt: skip
    calm = worlds.calm()
    settings = calm.workspace.model_copy(update={"clients": (client("pi"),)})
    world = derive(dataclasses.replace(calm, clients=states, workspace=settings))
    assert [p for p in world.problems if p.startswith("client ")] == [
        "client pi drifts: m[id=x].ctx: has 524,288, serves 393,216 (and 1 more): `apply pi` writes what serves",
        "client far is not converged: no credential: ssh mini: no credential: denied",
    ]
    assert [c["state"] for c in status_json(world)["clients"]] == [
        "drift",
        "no-credential",
        "converged",
        "unknown",
    ]
    page = "\n".join(status_lines(world))
    assert "pi drift ~/m.json: m[id=x].ctx: has 524,288, serves 393,216; two" in page
    assert policies.apply(world, Target(target="ok")) == "ok is converged"
    assert policies.apply(world, Target()) is None
    assert "no client is known" in str(policies.apply(calm, Target()))


def test_the_standing_reading_takes_what_serves_from_the_world(world: World) -> None:
    record = world.box.store.read()
    serve = record.serve_in("primary")
    assert serve
    seen = dataclasses.replace(
        worlds.calm(), record=record, stored=world.box.store.kept_recipes(), workspace=world.box.workspace,
        engines={serve.container_id: Reading.known(ENGINE, 0.0, "engine")},
    )  # fmt: skip
    assert [c.state for c in client_states(world.box)(seen)] == ["drift"]
    silent = dataclasses.replace(seen, engines={serve.container_id: Reading.error("refused", 0.0, "engine")})
    assert [c.state for c in client_states(world.box)(silent)] == ["unknown"]


def test_an_unknown_client_is_named(world: World) -> None:
    with pytest.raises(Exception, match=r"no client 'nope' \(have: pi\)"):
        world.plan("apply", target="nope")
