"""Gates over real sockets: what passes, what fails and as what, what our own trouble is called."""

# ruff: noqa: E501
from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.box import MIB, Container, Engine, Gpu, GpuGrant, GpuSnapshot
from anvil_tui.core.errors import NotFound, Unreachable
from anvil_tui.core.gates import FailureClass, Gate, GateProgress, GateResult, Suite, Verdict
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.waivers import Waiver
from anvil_tui.ports import LogLine
from anvil_tui.service.gates import operational
from anvil_tui.service.gates.conductor import Conductor, GateTarget, suite_passed
from anvil_tui.service.gates.session import GateParts
from tests.support.load import CalmGenerator
from tests.support.scripted import DONE, SSE_HEAD, Scripted, Seen, Step, answer, chunk, scripted

ID = "c" * 64
GPU = "GPU-1"


def recipe(**more: Any) -> Recipe:
    fields: dict[str, Any] = {
        "schema": "anvil.recipe/1", "id": "r", "family": "f", "engine": "vllm", "served_name": "served",
        "exclusive": False, "rollback": "none: test", "image": {"ref": "x@sha256:" + "a" * 64},
        "model": {"repo": "r"}, "launch": {"argv": ("{port}",)},
        "envelope": {"context_tokens": 4096, "max_output_tokens": 256, "concurrency": 1},
        "budgets": {"visible_tokens": 100, "reasoning_tokens": 28}, **more,
    }  # fmt: skip
    return Recipe.model_validate(fields)


GPU_RECIPE = {"gpus": {"select": (GPU,)}, "reserve": {"mib_per_gpu": 3072}}


def suite(*gates: dict[str, Any]) -> Suite:
    return Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "s", "gates": tuple({"id": g["kind"], **g} for g in gates)}
    )


@dataclass
class Box:
    """Container, engine and GPU readings that a test changes while gates run."""

    container: Container | None = field(
        default_factory=lambda: Container(
            ID, "n", "running", "img", "ref", started_at="2026-11-29T00:00:00Z", restart_count=0, oom_killed=False,
            gpus=GpuGrant((GPU,), "uuids", (GPU,), "device-request"), log_driver="json-file",
        )
    )  # fmt: skip
    lines: list[LogLine] = field(default_factory=list)
    engine: Engine = field(
        default_factory=lambda: Engine("vllm", "ready", served=("served",), context_tokens=4096)
    )
    free_mib: Any = 4000
    gpu_state: Any = "ok"
    bus_id: str | None = None
    ecc: Any = None
    gpu_reads: int = 0
    silent: bool = False

    def inspect(self, container_id: str) -> Container:
        if self.silent:
            raise Unreachable("docker", "the daemon is silent")
        if self.container is None:
            raise NotFound(f"no container {container_id}")
        return self.container

    def logs(self, container_id: str, *, tail: int = 2000) -> tuple[LogLine, ...]:
        return tuple(self.lines)


def told(value: Any) -> Any:
    """A value, or the next of a list, whose last is told for ever."""
    if not isinstance(value, list):
        return value
    return value.pop(0) if len(value) > 1 else value[0]


@dataclass
class Gpus:
    box: Box

    def read(self) -> Reading[GpuSnapshot]:
        self.box.gpu_reads += 1
        free, ecc = told(self.box.free_mib), told(self.box.ecc)
        gpu = Gpu(
            0, GPU, state=self.box.gpu_state, free_bytes=None if free is None else free * MIB,
            bus_id=self.box.bus_id, ecc_uncorrected=ecc,
        )  # fmt: skip
        return Reading.known(GpuSnapshot("1", (gpu,)), time.monotonic(), "test")


@dataclass
class Engines:
    box: Box

    def read(self, kind: EngineKind, port: int) -> Engine:
        return self.box.engine


Reply = Callable[[Seen], Sequence[Step]]


@dataclass
class Bench:
    server: Scripted
    box: Box
    events: list[GateProgress | GateResult] = field(default_factory=list)

    def conductor(self) -> Conductor:
        box: Any = self.box
        return Conductor(GateParts(OpenAIClient(time.monotonic, 1.0), Engines(box), box, Gpus(box), SystemClock()))  # type: ignore[arg-type]

    def target(self, made: Recipe | None = None, **more: Any) -> GateTarget:
        return GateTarget(made or recipe(), ID, self.server.url, **more)

    def run(self, what: Suite, made: Recipe | None = None, **more: Any) -> tuple[GateResult, ...]:
        return self.conductor().run(what, self.target(made, **more), self.events.append, lambda: False)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Callable[..., Bench]]:
    """Starts a server that answers every request with what the function says."""
    opened: list[Any] = []

    def start(reply: Reply, box: Box | None = None) -> Bench:
        context = scripted(lambda seen: as_asked(seen, reply(seen)))
        opened.append(context)
        return Bench(context.__enter__(), box or Box())

    yield start
    for context in opened:
        context.__exit__(None, None, None)


WHOLE = {"X_Whole": "1"}


def as_asked(seen: Seen, steps: Sequence[Step]) -> Sequence[Step]:
    """A good message of `said` as the stream that was asked for, unless it says that it stays whole."""
    (first, *rest) = steps
    if rest or not isinstance(first, bytes) or not first.startswith(b"HTTP/1.1 200") or b"X-Whole" in first:
        return steps
    head, body = first.split(b"\r\n\r\n", 1)
    if not seen.json.get("stream") or b"X-Anvil-Backend" not in head:
        return steps
    value = json.loads(body)
    (choice,) = value["choices"]
    backend = b"\r\nX-Anvil-Backend: slot-a"
    usage = b"data: " + json.dumps({**value, "choices": []}).encode() + b"\n\n"
    delta = chunk(**choice["message"], finish=choice["finish_reason"])
    return [SSE_HEAD.replace(b"\r\n\r\n", backend + b"\r\n\r\n"), delta, usage, DONE]


def said(text: str = "", tokens: int = 50, whole: bool = False, **message: Any) -> list[Step]:
    finish = message.pop("finish", "tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"content": text, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": tokens, "completion_tokens": 2}
    more = WHOLE if whole else {}
    return [answer({"model": "anything", "choices": [choice], "usage": usage}, X_Anvil_Backend="slot-a", **more)]


def asked(seen: Seen) -> str:
    return str(seen.json["messages"][-1]["content"])


def good(seen: Seen) -> Sequence[Step]:
    """A model that does what each gate asks, by reading the question."""
    body, text = seen.json, asked(seen)
    if body["messages"][-1]["role"] == "tool":
        return said(f"It is {json.loads(text)['dispatch_code']}.")
    if "tools" in body:
        room = re.search(r'room "(\w+)" and celsius (\d+)', text)
        order = re.search(r'order_id "([\w-]+)"', text)
        name, args = (
            ("set_thermostat", {"room": room[1], "celsius": int(room[2])})
            if room
            else ("find_order", {"order_id": order and order[1]})
        )
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        if body["stream"]:
            return [SSE_HEAD, chunk(tool_calls=[{**call, "index": 0}]), chunk(finish="tool_calls"), DONE]
        return said(tool_calls=[call])
    tokens = 20 + len(text.split()) * 3 // 2
    if "access code" in text:
        place = re.search(r"What is the access code of the (\w+)\?", text)
        code = re.search(rf"The access code of the {place[1] if place else ''} is ([\w-]+)\.", text)
        return said(code[1] if code else "", tokens)
    return said("pong" if "pong" in text else text[text.index("{") :], tokens)


FUNCTIONAL = suite(
    {"kind": "identity"}, {"kind": "smoke"}, {"kind": "json", "repeat": 3}, {"kind": "tools", "repeat": 4},
    {"kind": "streaming-tools", "repeat": 2}, {"kind": "tool-result"},
    {"kind": "needle", "prompt_tokens_at_least": 2000, "repeat": 2}, {"kind": "log-audit"}, {"kind": "container-state"},
)  # fmt: skip


def test_a_good_serve_passes_everything(bench: Callable[..., Bench]) -> None:
    made = bench(good, Box(lines=[LogLine("INFO fine", "2026-11-29T00:00:01Z")]))
    results = made.run(FUNCTIONAL)
    assert [(r.gate, r.verdict, r.reason) for r in results if r.verdict is not Verdict.PASSED] == []
    assert suite_passed(results)
    assert [r.passed for r in results] == [1, 1, 3, 4, 2, 1, 2, 1, 1]
    needles = [o for o in results[6].observations if o.raw.get("purpose") != "calibration"]
    assert all(o.ok and o.prompt_tokens is not None and 2000 <= o.prompt_tokens <= 2100 for o in needles)
    assert "prompt tokens" in results[6].reason
    sent = [seen.json for seen in made.server.seen]
    assert {body["model"] for body in sent} == {"served"}
    assert {body["max_tokens"] for body in sent} == {128, 1}
    rooms = {asked(s) for s in made.server.seen if "set_thermostat" in s.body.decode()}
    assert len(rooms) == 6, "arguments differ from repeat to repeat"
    told = [e for e in made.events if isinstance(e, GateProgress) and e.gate == "tools"]
    assert [e.done for e in told] == [0, 1, 2, 3, 4]
    assert [e for e in made.events if isinstance(e, GateResult)] == list(results)


def only(
    bench: Callable[..., Bench],
    reply: Reply,
    gate: dict[str, Any],
    made: Recipe | None = None,
    box: Box | None = None,
    **more: Any,
) -> GateResult:
    (result,) = bench(reply, box).run(suite(gate), made, **more)
    return result


def tool_call(name: str, arguments: str) -> list[Step]:
    return said(tool_calls=[{"id": "a", "function": {"name": name, "arguments": arguments}}])


@pytest.mark.parametrize(
    ("gate", "reply", "failure", "words"),
    [
        ({"kind": "smoke"}, said("Hello!"), FailureClass.CHECK, "'Hello!'"),
        ({"kind": "smoke"}, said("", reasoning="hm", finish="length"), FailureClass.REASONING_BUDGET, "2 of 128 tokens"),
        ({"kind": "smoke"}, said("a</think>pong"), FailureClass.REASONING_LEAK, "after it: 'pong'"),
        ({"kind": "smoke"}, [SSE_HEAD, chunk(content="po"), b'data: {"error":{"message":"dead","code":500}}\n\n'], FailureClass.STREAM, "dead"),
        ({"kind": "json"}, said('```json\n{"city": "Oslo"}\n```'), FailureClass.CHECK, "fenced_json"),
        ({"kind": "tools"}, said("It is sunny."), FailureClass.TOOL_CALL, "0 tool calls, not 1; it said 'It is sunny.'"),
        ({"kind": "tools"}, tool_call("set_thermostat", '{"room": "attic", "celsius": 20}'), FailureClass.TOOL_CALL, 'room is "attic"'),
        ({"kind": "tools"}, tool_call("get_weather", "{}"), FailureClass.TOOL_CALL, "'get_weather'"),
        ({"kind": "tools"}, [answer({"error": {"message": "output does not match the expected format", "code": 500}}, "500 X")], FailureClass.CHECK, "500"),
        ({"kind": "needle", "prompt_tokens_at_least": 50}, said("The code is AB-1", 60), FailureClass.CHECK, "engine counts"),
    ],
)  # fmt: skip
def test_failures_are_named(
    bench: Callable[..., Bench], gate: dict[str, Any], reply: list[Step], failure: FailureClass, words: str
) -> None:
    result = only(bench, lambda seen: reply, gate)
    assert (result.verdict, result.failures) == (Verdict.FAILED, (failure,))
    assert words in result.reason
    assert not suite_passed([result])
    assert result.observations[-1].failure == failure or gate["kind"] == "needle"


def test_a_stream_that_is_no_stream_fails_streaming_tools(bench: Callable[..., Bench]) -> None:
    def whole(seen: Seen) -> Sequence[Step]:
        room = re.search(r'room "(\w+)" and celsius (\d+)', asked(seen))
        assert room
        call = {"name": "set_thermostat", "arguments": json.dumps({"room": room[1], "celsius": int(room[2])})}
        return said(tool_calls=[{"id": "a", "function": call}], whole=True)

    result = only(bench, whole, {"kind": "streaming-tools"})
    assert (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.STREAM,))
    assert only(bench, whole, {"kind": "tools"}).verdict is Verdict.PASSED


def test_a_stream_that_is_no_stream_is_no_streamed_answer(bench: Callable[..., Bench]) -> None:
    """The smoke gate asks for a stream, and so does every gate that asks both ways."""
    smoke, length = bench(
        lambda seen: said("pong", finish="length" if "pong" not in asked(seen) else "stop", whole=True)
    ).run(suite({"kind": "smoke"}, {"kind": "length", "visible_tokens": 2}))
    for result in (smoke, length):
        assert (result.verdict, result.failures[-1:]) == (Verdict.FAILED, (FailureClass.STREAM,)), result
        assert "the answer came as one message" in result.reason


@pytest.mark.parametrize("kind", ["smoke", "json"])
def test_a_daemon_that_does_not_answer_kills_no_serve(bench: Callable[..., Bench], kind: str) -> None:
    """One request breaks while the daemon is silent for a moment: the rest is asked all the same."""
    box = Box()
    turns: list[int] = []

    def breaks(seen: Seen) -> Sequence[Step]:
        turns.append(1)
        box.silent = len(turns) == 1
        return ["reset"] if len(turns) == 1 else good(seen)

    first, second = bench(breaks, box).run(suite({"kind": kind, "id": "a"}, {"kind": kind, "id": "b"}))
    assert (first.verdict, second.verdict) == (Verdict.ERRORED, Verdict.PASSED)


def test_an_engine_that_dies_in_the_last_request_of_a_k_of_n_gate_has_not_passed_it(
    bench: Callable[..., Bench],
) -> None:
    box = Box()
    turns: list[int] = []

    def dies(seen: Seen) -> Sequence[Step]:
        turns.append(1)
        if len(turns) < 3:
            return good(seen)
        assert box.container
        box.container = replace(box.container, status="exited", exit_code=139)
        return ["reset"]

    (result,) = bench(dies, box).run(suite({"kind": "smoke", "repeat": 3, "pass_at_least": 2}))
    assert (result.verdict, result.passed) == (Verdict.ERRORED, 2)
    assert "the engine died" in result.reason


def test_a_daemon_that_does_not_answer_lets_no_unrunnable_gate_run(bench: Callable[..., Bench]) -> None:
    made = bench(good, Box(silent=True))
    gates = suite({"kind": "smoke", "routed": True}, {"kind": "log-audit"})
    smoke, log = made.run(gates)
    assert (smoke.verdict, log.verdict) == (Verdict.UNRUNNABLE, Verdict.UNRUNNABLE)
    assert "no way through the gateway" in smoke.reason and "the daemon is silent" in log.reason


def test_a_result_that_is_not_used_fails(bench: Callable[..., Bench]) -> None:
    def forgets(seen: Seen) -> Sequence[Step]:
        return said("All done.") if seen.json["messages"][-1]["role"] == "tool" else good(seen)

    result = only(bench, forgets, {"kind": "tool-result"})
    assert (result.verdict, len(result.observations)) == (Verdict.FAILED, 2)
    assert [o.ok for o in result.observations] == [True, False]

    def longer(seen: Seen) -> Sequence[Step]:
        """The code with another digit at its end is another code."""
        used = seen.json["messages"][-1]["role"] == "tool"
        return said(f"It is {json.loads(asked(seen))['dispatch_code']}7.") if used else good(seen)

    assert only(bench, longer, {"kind": "tool-result"}).verdict is Verdict.FAILED
    again = only(bench, lambda s: tool_call("find_order", '{"order_id": "A-1"}'), {"kind": "tool-result"})
    assert again.failures == (FailureClass.TOOL_CALL,)


@pytest.mark.parametrize(
    ("reply", "verdict", "words"),
    [
        (["reset"], Verdict.ERRORED, "unreachable"),
        ([SSE_HEAD, chunk(content="po")], Verdict.ERRORED, "stream_broken: truncated"),
        ([answer({"error": "Unauthorized"}, "401 Unauthorized")], Verdict.ERRORED, "401"),
        ([answer(b"<html>busy</html>", "503 X", "text/html", Retry_After="9")], Verdict.ERRORED, "it asks to wait 9 s"),
        ([answer({"error": {"message": "tools param requires --jinja flag", "code": 400}}, "400 X")], Verdict.UNSUPPORTED, "--jinja"),
        ([answer({"object": "error", "message": "This model's maximum context length is 32 tokens. However, you requested 40 tokens", "code": 400}, "400 X")], Verdict.FAILED, "40 tokens asked, 32 allowed"),
    ],
)  # fmt: skip
def test_our_trouble_is_not_the_models(
    bench: Callable[..., Bench], reply: list[Step], verdict: Verdict, words: str
) -> None:
    result = only(bench, lambda seen: reply, {"kind": "smoke"})
    assert result.verdict is verdict
    assert words in result.reason
    assert len(result.observations) == 1, "a request that fails leaves its observation, too"


def test_k_of_n(bench: Callable[..., Bench]) -> None:
    turn = iter(["pong", "no", "pong", "pong", "no", "pong"])

    def alternates(seen: Seen) -> Sequence[Step]:
        return said(next(turn))

    made = bench(alternates)
    enough, short = made.run(
        suite(
            {"kind": "smoke", "id": "a", "repeat": 3, "pass_at_least": 2},
            {"kind": "smoke", "id": "b", "repeat": 3},
        )
    )
    assert (enough.verdict, enough.passed, enough.of) == (Verdict.PASSED, 2, 3)
    assert (short.verdict, short.passed, short.of) == (Verdict.FAILED, 2, 3)
    assert short.reason.startswith("2/3; request 2: check_failed")


def test_accepting_a_verdict_is_the_gates_own_rule(bench: Callable[..., Bench]) -> None:
    refuses = [answer({"error": {"message": "tool calls are not supported", "code": 400}}, "400 X")]
    (strict, lax) = bench(lambda s: refuses).run(
        suite({"kind": "tools", "id": "a"}, {"kind": "tools", "id": "b", "accept": ("unsupported",)})
    )
    assert strict.verdict is lax.verdict is Verdict.UNSUPPORTED
    assert not suite_passed([strict]) and suite_passed([lax])
    assert not suite_passed([])


def test_a_dead_engine_is_named_and_asked_no_more(bench: Callable[..., Bench]) -> None:
    box = Box()

    def dies(seen: Seen) -> Sequence[Step]:
        assert box.container
        box.container = replace(box.container, status="exited", exit_code=137, oom_killed=True)
        stamp = datetime.now(UTC).isoformat()
        box.lines.append(LogLine("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", stamp))
        return [SSE_HEAD, chunk(content="po"), "reset"]

    made = bench(dies, box)
    smoke, tools, state = made.run(
        suite({"kind": "smoke", "repeat": 5}, {"kind": "tools", "repeat": 5}, {"kind": "container-state"})
    )
    assert (smoke.verdict, tools.verdict, state.verdict) == (Verdict.ERRORED, Verdict.ERRORED, Verdict.FAILED)
    assert "the engine died: container exited, exit code 137, killed for memory" in smoke.reason
    assert "CUDA out of memory" in smoke.reason
    assert "the engine died" in tools.reason
    assert len(made.server.seen) == 1
    assert "killed for memory" in state.reason


def test_cancelling_keeps_what_was_done_and_cancels_the_rest(bench: Callable[..., Bench]) -> None:
    made = bench(good)
    asks = iter([False, False, True, True, True])
    results = made.conductor().run(
        suite({"kind": "smoke", "repeat": 5}, {"kind": "json"}),
        made.target(),
        made.events.append,
        lambda: next(asks),
    )
    assert [r.verdict for r in results] == [Verdict.CANCELLED, Verdict.CANCELLED]
    assert len(results[0].observations) == len(made.server.seen) == 2
    assert "2/5" in results[0].reason


def test_the_log_is_named_as_probable_cause_of_a_failed_structured_gate(bench: Callable[..., Bench]) -> None:
    box = Box()
    fsm = "ERROR 09-02 10:03:11 [xgrammar.py:160] Failed to advance FSM for request chatcmpl-7 for tokens 154829. Please file an issue."

    def broken(seen: Seen) -> Sequence[Step]:
        box.lines += [LogLine(fsm, "2026-01-01T00:00:00Z"), LogLine(fsm, datetime.now(UTC).isoformat())]
        return said("{")

    result = only(bench, broken, {"kind": "json"}, box=box)
    assert result.reason.count("Failed to advance FSM") == 1
    assert "probable cause" in result.reason and "more" not in result.reason


@pytest.mark.parametrize(
    ("engine", "verdict", "words"),
    [
        ({"served": ("other",)}, Verdict.FAILED, "identity_mismatch: serves other, not served"),
        ({"served": ("served", "lora")}, Verdict.FAILED, "also serves lora"),
        ({"context_tokens": 2048}, Verdict.FAILED, "2,048"),
        ({"context_tokens": None}, Verdict.UNVERIFIED, "does not report"),
        ({"http": "error", "reason": "500"}, Verdict.ERRORED, "500"),
    ],
)  # fmt: skip
def test_identity_is_the_model_card_not_the_echoed_name(
    bench: Callable[..., Bench], engine: dict[str, Any], verdict: Verdict, words: str
) -> None:
    box = Box(engine=replace(Box().engine, **engine))
    result = only(bench, good, {"kind": "identity"}, box=box)
    assert result.verdict is verdict
    assert words in result.reason


def test_names_that_an_engine_gives_itself_hide_no_key(bench: Callable[..., Bench]) -> None:
    key = "engine-secret-1234"
    box = Box(engine=replace(Box().engine, served=(f"m-{key}",), version=f"v {key}"))
    made = bench(good, box)
    target = replace(made.target(), routed_key=key)
    results = made.conductor().run(suite({"kind": "identity"}), target, made.events.append, lambda: False)
    assert results[0].verdict is Verdict.FAILED and key not in str(results)


def test_a_log_that_the_gates_alone_made_too_long_to_read_is_not_clean(bench: Callable[..., Bench]) -> None:
    now = "2026-11-29T00:00:01Z"
    earlier = Box(lines=[LogLine("INFO fine", now)] * operational.LOG_TAIL)
    assert only(bench, good, {"kind": "log-audit"}, box=earlier).verdict is Verdict.PASSED
    later = datetime.now(UTC).replace(year=2100).isoformat()
    flood = Box(lines=[LogLine("INFO fine", later)] * operational.LOG_TAIL)
    result = only(bench, good, {"kind": "log-audit"}, box=flood)
    assert (result.verdict, "more than 20,000 lines" in result.reason) == (Verdict.UNVERIFIED, True)


def test_routed_requests_must_come_from_the_slot(bench: Callable[..., Bench]) -> None:
    made = bench(good)
    gates = suite({"kind": "identity", "routed": True}, {"kind": "smoke", "routed": True})
    right = made.run(gates, routed_url=made.server.url + "/@slot-a", routed_key="client-secret", slot="slot-a")
    assert suite_passed(right)
    assert made.server.seen[0].path == "/@slot-a/v1/chat/completions"
    assert made.server.seen[0].headers["authorization"] == "Bearer client-secret"
    wrong = made.run(gates, routed_url=made.server.url + "/@slot-b", slot="slot-b")
    assert [r.failures for r in wrong] == [(FailureClass.IDENTITY,)] * 2
    assert "answered by slot-a, not slot-b" in wrong[0].reason
    assert set(made.conductor().unrunnable(gates, made.target())) == {"identity", "smoke"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restart_count": 1}, "restart count went from 0 to 1"), ({"oom_killed": True}, "killed for memory"),
        ({"started_at": "2026-11-29T01:00:00Z"}, "started again"), ({"status": "exited", "exit_code": 0}, "exit code 0"),
        (None, "gone"),
    ],
)  # fmt: skip
def test_any_change_of_the_container_fails(
    bench: Callable[..., Bench], change: dict[str, Any] | None, words: str
) -> None:
    box = Box()

    def changes(seen: Seen) -> Sequence[Step]:
        box.container = replace(box.container, **change) if change and box.container else None
        return good(seen)

    _, state = bench(changes, box).run(suite({"kind": "smoke"}, {"kind": "container-state"}))
    assert state.verdict is Verdict.FAILED
    assert words in state.reason


@pytest.mark.parametrize("unknown", [{"restart_count": None}, {"oom_killed": None}])
def test_a_container_that_does_not_tell_its_restarts_or_kills_proves_nothing(
    bench: Callable[..., Bench], unknown: dict[str, Any]
) -> None:
    box = Box()
    assert box.container
    box.container = replace(box.container, **unknown)
    state = only(bench, good, {"kind": "container-state"}, box=box)
    assert (state.verdict, "does not tell" in state.reason) == (Verdict.UNVERIFIED, True)


def test_a_log_without_a_line_and_a_log_cut_short_do_not_pass_as_whole(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = only(bench, good, {"kind": "log-audit"}, box=Box(lines=[]))
    assert (empty.verdict, "no line" in empty.reason) == (Verdict.UNVERIFIED, True)
    monkeypatch.setattr(operational, "LOG_TAIL", 2)
    box = Box(lines=[LogLine("INFO fine", "2026-11-29T00:00:01Z")] * 2)
    cut = only(bench, good, {"kind": "log-audit"}, box=box)
    assert cut.verdict is Verdict.PASSED and "only the newest 2 lines were read" in cut.reason


def test_the_log_audit_fails_on_fatal_lines_of_this_start_and_lists_suspects(bench: Callable[..., Bench]) -> None:
    fatal = "EngineCore encountered a fatal error."
    old, new = "2026-11-28T00:00:00Z", "2026-11-29T00:00:01Z"
    box = Box(lines=[LogLine(fatal, old), LogLine("INFO fine", new), LogLine("some odd error \x1b[31m", new)])
    clean = only(bench, good, {"kind": "log-audit"}, box=box)
    assert clean.verdict is Verdict.PASSED
    assert clean.observations[0].raw["suspect"] == ["some odd error \x1b[31m"]
    box.lines.append(LogLine(fatal, new))
    bad = only(bench, good, {"kind": "log-audit"}, box=box)
    assert bad.verdict is Verdict.FAILED
    assert "1 fatal lines (0 since the gates began)" in bad.reason


def test_the_reserve_counts_lazy_allocation_and_a_waiver_changes_only_the_class(
    bench: Callable[..., Bench],
) -> None:
    gates = suite(
        {"kind": "reserve", "id": "idle"},
        {"kind": "smoke"},
        {"kind": "reserve", "id": "after", "when": "after-work"},
    )

    def allocates(box: Box) -> Reply:
        def reply(seen: Seen) -> Sequence[Step]:
            box.free_mib = 2101
            return good(seen)

        return reply

    box = Box(free_mib=3351)
    idle, _, after = bench(allocates(box), box).run(gates, recipe(**GPU_RECIPE))
    assert (idle.verdict, after.verdict) == (Verdict.PASSED, Verdict.FAILED)
    assert "3,351 MiB free" in idle.reason
    assert "2,101 MiB free on GPU-1, reserve 3,072 MiB, after-work: short by 971 MiB" in after.reason
    waived = {
        **GPU_RECIPE,
        "reserve": {
            "mib_per_gpu": 3072,
            "waived_on": datetime(2026, 9, 2, tzinfo=UTC).date(),
            "waiver": "model-only",
            "waiver_scope": "this GPU pair",
        },
    }
    box = Box(free_mib=3351)
    *_, after = bench(allocates(box), box).run(gates, recipe(**waived))
    assert after.verdict is Verdict.PASSED
    assert "2,101 MiB free" in after.reason and "waived on 2026-09-02, model-only" in after.reason


@pytest.mark.parametrize(
    ("reserve_mib", "gpu", "until", "verdict"),
    [
        pytest.param(2048, GPU, "", Verdict.PASSED, id="in-force"),
        pytest.param(2200, GPU, "", Verdict.FAILED, id="reserve-that-it-leaves"),
        pytest.param(0, "GPU-2", "", Verdict.FAILED, id="other-gpu"),
        pytest.param(0, GPU, "2020-01-31", Verdict.FAILED, id="expired"),
    ],
)
def test_a_recorded_waiver_counts_on_its_gpus_until_its_day(
    bench: Callable[..., Bench], reserve_mib: int, gpu: str, until: str, verdict: Verdict
) -> None:
    """2,101 MiB are free, 3,072 are the standing reserve."""
    waiver = Waiver("2026-09-02T10:00:00+00:00", "r", (gpu,), 3072, reserve_mib, "model-only pair", until=until)
    what = suite({"kind": "reserve", "id": "idle"})
    (got,) = bench(good, Box(free_mib=2101)).run(what, recipe(**GPU_RECIPE), waivers=(waiver,))
    assert got.verdict is verdict
    assert got.observations[0].raw["free_mib"] == {GPU: 2101}
    assert ("waived on 2026-09-02, model-only pair" in got.reason) is (verdict is Verdict.PASSED)


def test_a_reserve_that_cannot_be_read_is_no_shortfall(bench: Callable[..., Bench]) -> None:
    lost = only(bench, good, {"kind": "reserve"}, recipe(**GPU_RECIPE), Box(gpu_state="lost"))
    assert (lost.verdict, "cannot be read" in lost.reason) == (Verdict.ERRORED, True)


def test_free_memory_that_is_no_longer_told_is_not_zero(bench: Callable[..., Bench]) -> None:
    gates = suite({"kind": "reserve", "id": "early"}, {"kind": "smoke"}, {"kind": "reserve", "id": "late"})
    box = Box(free_mib=4000)

    def goes_blind(seen: Seen) -> Sequence[Step]:
        box.free_mib = None
        return good(seen)

    early, _, late = bench(goes_blind, box).run(gates, recipe(**GPU_RECIPE))
    assert (early.verdict, late.verdict) == (Verdict.PASSED, Verdict.UNVERIFIED)
    assert "does not report its free memory" in late.reason


def test_what_cannot_run_is_said_before_anything_starts(bench: Callable[..., Bench]) -> None:
    made = bench(good)
    what = suite(
        {"kind": "needle", "prompt_tokens_at_least": 4000}, {"kind": "smoke", "routed": True},
        {"kind": "reserve", "when": "after-work"}, {"kind": "json"}, {"kind": "log-audit"},
    )  # fmt: skip
    assert made.box.container
    made.box.container = replace(made.box.container, log_driver="none")
    why = made.conductor().unrunnable(what, made.target())
    assert set(why) == {"needle", "smoke", "reserve", "log-audit"}
    assert "4,128 tokens, the recipe's context is 4,096" in why["needle"]
    assert "names no GPU" in why["reserve"]
    results = made.run(what)
    assert [r.verdict for r in results] == [Verdict.UNRUNNABLE] * 3 + [Verdict.PASSED, Verdict.UNRUNNABLE]
    early = suite({"kind": "reserve", "when": "after-work"})
    assert (
        "makes the model work" in made.conductor().unrunnable(early, made.target(recipe(**GPU_RECIPE)))["reserve"]
    )
    unset = recipe(gpus={"select": (GPU,)})
    idle = suite({"kind": "reserve"})
    assert "no reserve is set" in made.conductor().unrunnable(idle, made.target(unset))["reserve"]
    assert not made.conductor().unrunnable(idle, made.target(unset, reserve_mib=512))
    planned = replace(made.target(), container_id="")
    assert "log-audit" not in made.conductor().unrunnable(what, planned)


@pytest.mark.parametrize(
    ("thinking", "engine", "fields"),
    [
        ("none", "vllm", {}), ("off", "sglang", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("on", "llamacpp", {"chat_template_kwargs": {"enable_thinking": True}}), ("low", "vllm", {"reasoning_effort": "low"}),
        ("high", "llamacpp", {"chat_template_kwargs": {"reasoning_effort": "high"}}),
    ],
)  # fmt: skip
def test_thinking_control_per_engine(
    bench: Callable[..., Bench], thinking: str, engine: str, fields: dict[str, Any]
) -> None:
    made = bench(good)
    (result,) = made.run(suite({"kind": "smoke"}), recipe(thinking=thinking, engine=engine))
    body = made.server.seen[0].json
    assert {k: body[k] for k in ("chat_template_kwargs", "reasoning_effort") if k in body} == fields
    assert result.observations[0].raw["thinking"] == fields
    assert result.verdict is (Verdict.UNVERIFIED if thinking == "on" else Verdict.PASSED)


def test_thinking_that_is_off_must_not_reason(bench: Callable[..., Bench]) -> None:
    result = only(bench, lambda s: said("pong", reasoning="hm"), {"kind": "smoke"}, recipe(thinking="off"))
    assert (result.verdict, "thinking is off" in result.reason) == (Verdict.FAILED, True)


def test_a_gates_own_budget_wins(bench: Callable[..., Bench]) -> None:
    made = bench(good)
    made.run(suite({"kind": "smoke", "visible_tokens": 7, "reasoning_tokens": 0}))
    assert made.server.seen[0].json["max_tokens"] == 7


def test_a_needle_is_recalibrated_and_an_unmeasured_one_is_unverified(bench: Callable[..., Bench]) -> None:
    def bends(seen: Seen) -> Sequence[Step]:
        """Counts long prompts lower than the short ones promised."""
        reply = good(seen)
        if len(asked(seen)) > 6000:
            body = reply[0]
            assert isinstance(body, bytes)
            fewer = re.sub(
                rb'"prompt_tokens": (\d+)', lambda m: b'"prompt_tokens": %4d' % (int(m[1]) * 7 // 10), body
            )
            return [fewer]
        return reply

    result = only(bench, bends, {"kind": "needle", "prompt_tokens_at_least": 2000})
    assert result.verdict is Verdict.PASSED
    assert (result.observations[-1].prompt_tokens or 0) >= 2000
    assert len(result.observations) == 4, "two probes, one too short, one that holds"

    def mute(seen: Seen) -> Sequence[Step]:
        body = good(seen)[0]
        assert isinstance(body, bytes)
        return [re.sub(rb'"usage": \{', b'"usagE": {', body)]

    silent = only(bench, mute, {"kind": "needle", "prompt_tokens_at_least": 2000})
    assert silent.verdict is Verdict.UNVERIFIED


def test_observations_are_bounded_and_hold_no_secret(bench: Callable[..., Bench]) -> None:
    made = bench(lambda s: said("client-secret " * 1000))
    (result,) = made.run(
        suite({"kind": "smoke", "routed": True}),
        routed_url=made.server.url + "/@slot-a",
        routed_key="client-secret",
        slot="slot-a",
    )
    (seen,) = result.observations
    assert len(seen.excerpt.encode()) <= 2048
    assert "client-secret" not in json.dumps([seen.excerpt, seen.note, result.reason, dict(seen.raw)])


def test_gate_rules_are_checked_when_the_suite_is_read() -> None:
    with pytest.raises(ValueError, match="needs prompt_tokens_at_least"):
        Gate.model_validate({"id": "n", "kind": "needle"})


@pytest.mark.parametrize(
    ("layers", "gpus", "verdict"),
    [("0/33", GPU_RECIPE, Verdict.UNRUNNABLE), ("20/33", GPU_RECIPE, None), ("0/33", {}, None)],
)
def test_times_of_an_engine_that_fell_back_to_the_cpu_are_not_measured(
    bench: Callable[..., Bench], layers: str, gpus: dict[str, Any], verdict: Verdict | None
) -> None:
    """O-48: `not_on_gpu` refuses the gates of speed and capacity; functional ones run."""
    box = Box(lines=[LogLine(f'msg="offloaded {layers} layers to GPU"', "2026-11-29T00:00:01Z")])
    made = bench(lambda seen: said("pong"), box)
    conductor = Conductor(replace(made.conductor()._parts, load=CalmGenerator()))
    what = suite({"kind": "smoke"}, {"kind": "depth-sweep"}, {"kind": "capacity", "prompt_tokens": (100,)})
    smoke, *lanes = conductor.run(
        what, made.target(recipe(engine="llamacpp", **gpus)), made.events.append, lambda: False
    )
    assert smoke.verdict is Verdict.PASSED
    for lane in lanes:
        assert (lane.verdict is Verdict.UNRUNNABLE) is (verdict is Verdict.UNRUNNABLE), lane.reason
        assert ("not_on_gpu: 0 of 33 layers" in lane.reason) is (verdict is Verdict.UNRUNNABLE)
