"""What a world adds up to: phases, lights, positions, problems, the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.core.box import Backend, Container, Engine, Gateway, Gpu, GpuGrant, GpuSnapshot
from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.progress import Trail
from anvil_tui.core.readiness import PROVEN
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.shape import shape_of, write
from anvil_tui.core.standing import Check, CredentialState
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.core.world import BoxRecord, Lease, Phase, RecipeFile, RoleRecord, Serve, ServeRecord, World
from tests.support import worlds
from tests.support.membox import IMAGE, recipe, workspace

A, B, F = "a" * 64, "b" * 64, "f" * 64
GPU = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
RECIPES = {r.id: r for r in (recipe("a"), recipe("b"))}
STARTED = "2026-09-02T10:00:00Z"


def box(id_: str = A, **more: Any) -> Container:
    fields: dict[str, Any] = {
        "status": "running", "image_id": "sha256:i", "image_ref": IMAGE, "started_at": STARTED,
        "restart_count": 0, "restart_policy": "no",
    }  # fmt: skip
    return Container(id_, f"name-{id_[:2]}", **{**fields, **more})


def engine(name: str = "a", **more: Any) -> Reading[Engine]:
    fields: dict[str, Any] = {
        "http": "ready", "served": (name,), "context_tokens": 2048, "running": 0, "waiting": 0, "progress": 5.0,
    }  # fmt: skip
    return Reading.known(Engine("llamacpp", **{**fields, **more}), 1.0, "llamacpp")


SHAPE = write(shape_of(box()))


def record(id_: str, name: str, slot: str, port: int) -> ServeRecord:
    return ServeRecord(
        id_, name, RECIPES[name].digest(), "sha256:i", "primary", slot, port, name, "OP", shape=SHAPE
    )


def world(*containers: Container, target: str = "primary-a", in_flight: int | None = 3, **more: Any) -> World:
    """Incumbent A in primary-a, rollback B in primary-b, aliases at `target`."""
    gateway = Gateway(
        {"llm.primary": target, "llm.secondary": target},
        (Backend("primary-a", "127.0.0.1:9131", in_flight), Backend("primary-b", "127.0.0.1:9132", 0)),
        0, 1, True,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "now_s": 1.0,
        "now_utc": datetime(2026, 9, 2, 10, 0, 3, tzinfo=UTC),
        "containers": Reading.known(containers, 1.0, "docker"),
        "engines": {A: engine()},
        "trails": {A: Trail(1.0, STARTED, value=5.0, moved_at_s=1.0, was_ready=True)},
        "gateway": Reading.known(gateway, 1.0, "gateway"),
        "gpus": Reading.known(GpuSnapshot("1", ()), 1.0, "nvml"),
        "record": BoxRecord(
            1,
            {A: record(A, "a", "primary-a", 9131), B: record(B, "b", "primary-b", 9132)},
            {"primary": RoleRecord("primary", A, (B,))},
        ),
        "stored": {r.digest(): r for r in RECIPES.values()},
        "images": {IMAGE: "sha256:i"},
        "proofs": {i: tuple(Check(name, "ok", "seen", STARTED) for name in PROVEN) for i in (A, B)},
        "credentials": (CredentialState("key", "env:KEY", "accepted", at=STARTED),),
    }
    return derive(World(workspace(), False, **{**fields, **more}))


def one(made: World, id_: str = A) -> Serve:
    serve = made.serve(id_)
    assert serve is not None
    return serve


def stopped(id_: str = B, **more: Any) -> Container:
    return box(id_, **{"status": "exited", "exit_code": 0, "finished_at": STARTED, **more})


def test_the_ordinary_box() -> None:
    made = world(box(), stopped())
    a, b = made.serves
    assert (a.phase, a.position, a.in_flight, a.name) == (Phase.SERVING, "incumbent", 3, "a")
    lights = a.lights
    assert [x.state for x in (lights.process, lights.http, lights.identity, lights.progress)] == ["ok"] * 4
    assert (b.phase, b.position, b.in_flight) == (Phase.STOPPED, "rollback", None)
    assert made.rollbacks["primary"].ready and made.rollbacks["primary"].target == "b"
    assert made.problems == ()


def drain(state: str, **more: Any) -> tuple[OperationView, ...]:
    step = StepView("drain", "wait", state)  # type: ignore[arg-type]
    return (OperationView("OP1", "drain", "primary", role="primary", started_at=STARTED, steps=(step,), **more),)


@pytest.mark.parametrize(
    ("target", "in_flight", "operations", "phase"),
    [
        ("hold", 3, (), Phase.QUIESCED),
        ("hold", 0, (), Phase.QUIESCED),
        ("hold", 3, drain("running"), Phase.DRAINING),
        ("hold", 0, drain("done", outcome="done"), Phase.DRAINED),
        ("hold", None, drain("done", outcome="done"), Phase.QUIESCED),
        ("primary-b", 3, (), Phase.READY),
        ("none", 3, (), Phase.READY),
    ],
)
def test_what_the_gateway_does_with_a_ready_engine(
    target: str, in_flight: int | None, operations: tuple[OperationView, ...], phase: Phase
) -> None:
    made = world(box(), stopped(), target=target, in_flight=in_flight, operations=operations)
    assert (one(made).phase, one(made).in_flight) == (phase, in_flight)


def test_a_former_incumbent_that_finishes_is_draining() -> None:
    step = StepView("retire", "finish", "running")
    running = OperationView("OP", "promote", "b", role="primary", started_at=STARTED, steps=(step,))
    roles = {"primary": RoleRecord("primary", B, (A,))}
    base = world(box(), box(B), target="primary-b")
    made = derive(replace(
        base, operations=(running,), lease=Lease("OP", 1, "u", STARTED),
        record=replace(base.record, roles=roles), engines={A: engine(), B: engine("b")},
    ))  # fmt: skip
    assert (one(made, A).phase, one(made, B).phase) == (Phase.DRAINING, Phase.SERVING)


@pytest.mark.parametrize(
    ("steps", "target", "phases"),
    [
        ((("drain", "running"),), "primary-b", (Phase.DRAINING, Phase.SERVING)),
        ((("drain", "done"), ("hold-home", "done")), "hold", (Phase.READY, Phase.QUIESCED)),
        (
            (("drain", "done"), ("hold-home", "done"), ("drain-home", "running")),
            "hold",
            (Phase.READY, Phase.DRAINING),
        ),
        ((("drain", "done"), ("retire-home", "running")), "primary-a", (Phase.SERVING, Phase.DRAINING)),
    ],
)
def test_a_drill_drains_the_incumbent_and_on_its_way_home_the_way_back(
    steps: tuple[tuple[str, Any], ...], target: str, phases: tuple[Phase, Phase]
) -> None:
    views = tuple(StepView(name, name, state) for name, state in steps)
    running = OperationView("OP", "drill", "primary", role="primary", started_at=STARTED, steps=views)
    base = world(box(), box(B), target=target)
    made = derive(replace(
        base, operations=(running,), lease=Lease("OP", 1, "u", STARTED),
        engines={A: engine(), B: engine("b")},
    ))  # fmt: skip
    assert (one(made, A).phase, one(made, B).phase) == phases
    assert not [p for p in made.problems if "incumbent" in p]


def test_an_unreadable_gateway_leaves_in_flight_unknown() -> None:
    made = world(box(), stopped(), gateway=Reading.error("refused", 1.0, "gateway"))
    assert (one(made).phase, one(made).in_flight) == (Phase.READY, None)
    assert "gateway cannot be read: refused" in made.problems


@pytest.mark.parametrize("status", ["removing", "dead"])
def test_removing_and_dead_are_shown_as_themselves(status: str) -> None:
    """O-16, moby/moby#22312: as themselves, and not running; foreign ones too."""
    made = world(box(status=status, exit_code=137 if status == "dead" else None), stopped())
    serve = one(made)
    assert serve.phase is Phase.FAILED and serve.lights.process.word == status and serve.why.startswith(status)
    assert f"the name {serve.container.name} stays taken" in serve.why
    assert not serve.container.running
    foreign = box(F, status=status, gpus=GpuGrant(("all",), "all", (), "device-request"))
    if status == "removing":
        assert "is removing: the daemon has not finished" in one(world(box(), stopped(), foreign), F).why


LOOP: dict[str, Any] = {
    "status": "restarting",
    "restart_count": 35,
    "exit_code": 1,
    "restart_policy": "unless-stopped",
}


def test_a_restart_loop_is_never_ready() -> None:
    """O-17, eugr/spark-vllm-docker#257: also in the moment between two restarts in which it answers."""
    looping = box(**LOOP)
    assert (
        one(world(looping, stopped())).why
        == "restart_loop: restarted 35 times by its policy, last exit 1; stop it"
    )
    between = replace(looping, status="running", exit_code=None)
    made = world(between, stopped())
    assert one(made).phase is Phase.FAILED and one(made).lights.http.state == "ok"
    assert any("restart_loop" in p for p in made.problems)
    later = world(between, stopped(), now_utc=datetime(2026, 9, 2, 11, tzinfo=UTC))
    assert one(later).phase is Phase.SERVING


def test_a_container_removed_behind_the_console_is_missing_and_its_record_is_kept() -> None:
    """O-22, gpustack/gpustack#6279."""
    made = world(stopped())
    serve = one(made)
    assert (serve.phase, serve.container.status) == (Phase.ABSENT, "missing")
    assert serve.why.startswith("missing") and A in made.record.serves
    assert any("the incumbent a is absent" in p for p in made.problems)
    assert any("llm.primary" in p and "at primary-a, where no serve of ours runs" in p for p in made.problems)


def test_aliases_that_lead_nowhere_are_one_problem() -> None:
    """Six aliases of one dead serve pushed every event out of sight."""
    made = world(stopped())
    gateway = made.gateway.value
    assert gateway is not None
    many = replace(gateway, aliases={"llm.primary": "primary-a", "llm.voice": "primary-a"})
    told = derive(replace(made, gateway=Reading.known(many, made.now_s, "gateway"))).problems
    where = [p for p in told if p.startswith("gateway")]
    assert where == ["gateway: aliases llm.primary, llm.voice point at primary-a, where no serve of ours runs"]


def test_an_unreadable_daemon_makes_serves_lost_not_missing() -> None:
    last = (box(), stopped())
    made = world(containers=Reading.error("docker: refused", 2.0, "docker", last))
    assert {s.phase for s in made.serves} == {Phase.LOST}
    assert one(made).container.status == "running" and "docker: refused" in one(made).why
    assert not made.rollbacks["primary"].ready
    assert sum("docker: refused" in p for p in made.problems) == 1
    never = world(containers=Reading.unknown("not read yet", "docker"))
    assert {s.phase for s in never.serves} == {Phase.LOST} and {s.container.status for s in never.serves} == {
        "unknown"
    }


def test_a_serve_whose_gpu_is_lost_is_lost_although_it_answers() -> None:
    """XuehaiPan/nvitop#139."""
    gpus = GpuSnapshot("1", (Gpu(0, GPU, state="lost", reason="Xid 79"),))
    held = box(gpus=GpuGrant((GPU,), "uuids", (GPU,), "device-request"))
    made = world(held, stopped(), gpus=Reading.known(gpus, 1.0, "nvml"))
    assert one(made).phase is Phase.LOST and "gpu_lost" in one(made).why
    assert one(made).lights.http.state == "ok"


def test_foreign_containers_that_hold_gpus_are_shown_and_others_are_not() -> None:
    held = box(F, gpus=GpuGrant(("all",), "all", (), "privileged"))
    made = world(box(), stopped(), held, box("0" * 64))
    serve = one(made, F)
    assert (serve.phase, serve.position, serve.record) == (Phase.FOREIGN, "foreign", None)
    assert "all GPUs" in serve.why and len(made.serves) == 3
    assert any("foreign container" in p for p in made.problems)


@pytest.mark.parametrize(
    ("answer", "phase", "words"),
    [
        (engine("other"), Phase.FAILED, "identity_mismatch"),
        (engine(context_tokens=1024), Phase.FAILED, "short context"),
        (engine(context_tokens=None), Phase.SERVING, ""),
        (engine(served=()), Phase.LOADING, "no model card"),
        (engine(served=("a", "alias")), Phase.SERVING, ""),
    ],
)
def test_identity(answer: Reading[Engine], phase: Phase, words: str) -> None:
    serve = one(world(box(), stopped(), engines={A: answer}))
    assert serve.phase is phase and words in serve.why


def stuck(seconds: float) -> dict[str, Any]:
    trail = Trail(1.0, STARTED, value=5.0, moved_at_s=1.0 - seconds, was_ready=True)
    return {"engines": {A: engine(running=2)}, "trails": {A: trail}}


def test_running_requests_without_progress_are_a_suspicion_then_a_stall() -> None:
    """vllm-project/vllm#39863: /health 200 all the while."""
    early = one(world(box(), stopped(), **stuck(12)))
    assert (early.phase, early.lights.progress.state, early.lights.progress.word) == (
        Phase.SERVING,
        "wait",
        "flat 12 s",
    )
    late = world(box(), stopped(), **stuck(60))
    assert one(late).phase is Phase.FAILED and one(late).why.startswith("stalled 60 s: 2 running")
    assert one(late).lights.http.state == "ok" and len(late.problems) == 1


def loading(seconds_up: int, trail: Trail | None = None, http: str = "refused", **more: Any) -> Serve:
    minute, second = divmod(seconds_up, 60)
    now = datetime(2026, 9, 2, 10, minute, second, tzinfo=UTC)
    answer = Reading.known(Engine("llamacpp", http), 1.0, "x")  # type: ignore[arg-type]
    fields = {"now_utc": now, "engines": {A: answer}, "trails": {A: trail} if trail else {}, **more}
    return one(world(box(), stopped(), **fields))


def test_a_model_list_while_loading_is_not_ready() -> None:
    """mostlygeek/llama-swap#146: the reader says `starting` as long as /health does."""
    serve = loading(3, http="starting")
    assert (serve.phase, serve.lights.http.word) == (Phase.LOADING, "loading")


def test_a_load_past_its_deadline_is_a_named_time_out_with_the_last_progress() -> None:
    """O-104."""
    """mostlygeek/llama-swap#92."""
    assert loading(5).phase is Phase.LOADING
    late = loading(12, loads={A: LoadPhase("weights", 7, 9)})
    assert late.phase is Phase.FAILED
    assert (
        late.why
        == "start_timeout: not ready 12 s after its start (deadline 5 s); last progress: weights 7/9 (78 %)"
    )


def test_one_slow_answer_is_no_change_of_state_and_three_are() -> None:
    """O-47: sgl-project/sglang#22511."""

    def seen(misses: int) -> Serve:
        return loading(600, Trail(1.0, STARTED, was_ready=True, misses=misses), "error")

    assert (seen(2).phase, seen(2).lights.http.word) == (Phase.SERVING, "slow, 2 missed")
    assert seen(3).phase is Phase.FAILED and seen(3).why.startswith("unhealthy")


def test_a_candidate_that_an_operation_made_is_seated_before_it_is_recorded() -> None:
    labels = {"anvil.op": "OP9", "anvil.recipe": "b", "anvil.recipe-digest": RECIPES["b"].digest()}
    made_now = box(F, labels=labels, argv=("llama-server", *RECIPES["b"].filled_argv(9132)))
    made = world(box(), made_now, engines={A: engine(), F: engine("b")})
    serve = one(made, F)
    assert (serve.position, serve.phase, serve.in_flight, serve.name) == ("candidate", Phase.READY, 0, "b")


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"images": {IMAGE: None}}, "the image"),
        ({"images": {}}, "not looked up"),
        ({"stored": {}}, "the exact recipe b"),
    ],
)
def test_what_a_rollback_lacks(change: dict[str, Any], missing: str) -> None:
    made = world(box(), stopped(), **change)
    assert len(made.rollbacks["primary"].missing) == 1 and missing in made.rollbacks["primary"].missing[0]


@pytest.mark.parametrize(
    ("containers", "missing"),
    [
        ((box(),), "the retained container bbbbbbbbbbbb"),
        ((box(), stopped(image_id="sha256:other")), "has image sha256:other"),
        ((box(), stopped(status="dead")), "is dead"),
        ((box(), stopped(), box(F, ports=("127.0.0.1:9132->8000/tcp",))), "port 9132 of primary-b is taken by"),
    ],
)
def test_what_a_rollback_lacks_of_containers(containers: tuple[Container, ...], missing: str) -> None:
    reasons = world(*containers).rollbacks["primary"].missing
    assert len(reasons) == 1 and missing in reasons[0]


def test_a_recipe_file_with_the_same_digest_is_as_good_as_the_stored_one() -> None:
    made = world(box(), stopped(), stored={}, recipes=tuple(RecipeFile(n, r) for n, r in RECIPES.items()))
    assert made.rollbacks["primary"].ready
    changed = recipe("b", budgets={"visible_tokens": 9})
    made = world(box(), stopped(), stored={}, recipes=(RecipeFile("b", changed), RecipeFile("a", RECIPES["a"])))
    assert not made.rollbacks["primary"].ready


def test_no_ladder_means_no_rollback() -> None:
    made = world(
        box(), record=BoxRecord(1, {A: record(A, "a", "primary-a", 9131)}, {"primary": RoleRecord("primary", A)})
    )
    assert not made.rollbacks["primary"].ready and made.rollbacks["primary"].target == ""


def test_an_operation_is_alive_only_with_the_lease() -> None:
    made = world(box(), stopped(), operations=drain("running"), lease=Lease("OP1", 5, "me", STARTED))
    assert made.operations[0].state == "running" and made.problems == ()
    gone = world(box(), stopped(), operations=drain("running"))
    assert gone.operations[0].state == "interrupted" and "resume or undo" in gone.problems[0]


def test_exit_causes_reach_the_phase() -> None:
    killed = world(stopped(A, exit_code=137, oom_killed=True), stopped())
    assert one(killed).phase is Phase.FAILED and "OOM-killed" in one(killed).why
    plain = world(stopped(A, exit_code=1), stopped())
    assert one(plain).phase is Phase.FAILED and "OOM" not in one(plain).why


def test_status_tells_unknown_zero_stale_and_error_apart() -> None:
    none = status_lines(world(box(), stopped()))
    assert "  0 GPUs" in none and "2026-09-02 10:00:03 UTC" in none[0]
    missing = Reading[GpuSnapshot].unknown("NVML library not found", "nvml", 1.0)
    broken = Reading[GpuSnapshot].error("NVML code 18", 1.0, "nvml")
    stale = Reading.known(GpuSnapshot("1", ()), -60.0, "nvml")
    texts = {state: "\n".join(status_lines(world(box(), stopped(), gpus=r)))
             for state, r in (("unknown", missing), ("error", broken), ("stale", stale))}  # fmt: skip
    assert "unknown: NVML library not found" in texts["unknown"] and "0 GPUs" not in texts["unknown"]
    assert "error: NVML code 18" in texts["error"] and "0 GPUs" not in texts["error"]
    assert "stale: read 61 s ago" in texts["stale"]
    assert status_json(world(gpus=stale))["gpus"]["stale"] is True
    assert status_json(world(gpus=missing))["gpus"] == {
        "state": "unknown", "value": None, "age_s": 0.0, "stale": False,
        "reason": "NVML library not found", "source": "nvml",
    }  # fmt: skip


def test_status_has_every_gpu_and_every_serve() -> None:
    many = GpuSnapshot("1", tuple(Gpu(i, f"GPU-{i}", used_bytes=0, processes=None) for i in range(16)))
    made = world(box(), stopped(), gpus=Reading.known(many, 1.0, "nvml"))
    obj = json.loads(json.dumps(status_json(made)))
    assert len(obj["gpus"]["value"]["gpus"]) == 16 and obj["gpus"]["value"]["gpus"][3]["free_bytes"] is None
    assert [s["phase"] for s in obj["serves"]] == ["serving", "stopped"]
    assert obj["serves"][1]["in_flight"] is None and obj["serves"][0]["in_flight"] == 3
    text = "\n".join(status_lines(made))
    assert "used 0 free n/a of n/a MiB" in text and "process list not available here" in text


def test_a_phase_that_says_it_all_is_not_said_twice() -> None:
    """A serve that was stopped on purpose has no other reason than that."""
    (line,) = (line.strip() for line in status_lines(worlds.calm()) if line.endswith("stopped"))
    assert line.split() == [worlds.INCUMBENT, worlds.cid(worlds.INCUMBENT)[:12], "rollback", "stopped"]
