"""`anvil-tui evidence` on what operations really left: passed, failed, cancelled, torn, copied elsewhere."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.toml_files import write_workspace
from anvil_tui.cli.main import main
from anvil_tui.core.bundle import REPORTS
from anvil_tui.ports import ChatAnswer, ChatRequest
from tests.support.membox import World
from tests.unit.test_gate_run import Chat, gated, qualify


class Wrong(Chat):
    """Never says what it was asked to."""

    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        right = super().chat(base_url, request, api_key=api_key, timeout_s=timeout_s)
        return ChatAnswer(200, "no", finish_reason=right.finish_reason, model="a", completion_tokens=1)


def workspace(tmp_path: Path, chat: Chat) -> World:
    """A serve `a` runs, judged by the real conductor over a scripted model; journal and record are real files."""
    write_workspace(tmp_path / "box")
    return gated(tmp_path / "box" / "state", chat)


def run(world: World, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["--workspace", str(world.tmp.parent), "evidence", *argv])
    return code, capsys.readouterr().out


def told(world: World, capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code, out = run(world, capsys, *argv, "--json")
    return code, json.loads(out)


def folder(world: World) -> Path:
    return world.tmp / "operations" / world.last


def serve(world: World) -> str:
    return world.docker.running()[0].id[:12]


def test_a_passed_run_is_listed_shown_and_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = workspace(tmp_path, Chat())
    assert qualify(world) == "done"
    _, (row,) = told(world, capsys, "list")
    assert row["id"] == f"{world.last}/{serve(world)}"
    assert (row["state"], row["passed"], row["recipe"], row["gates"]) == ("complete", True, "a", 3)
    _, text = run(world, capsys, "list")
    assert text.split()[-3:] == ["passed", "small", "a"], "verdict, suite and recipe"
    _, shown = told(world, capsys, "show", world.last)
    assert (shown["identity"]["recipe"], shown["identity"]["docker"]) == ("a", "27.0")
    assert [r["verdict"] for r in shown["results"]] == ["passed"] * 3
    assert told(world, capsys, "verify") == (0, [{"id": row["id"], "problems": [], "unchecked": []}])
    assert f"ok   {row['id']}" in run(world, capsys, "verify", world.last)[1]


def test_an_operation_without_its_journal_or_with_another_bundle_gets_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = workspace(tmp_path, Chat())
    assert qualify(world) == "done"
    manifest = folder(world) / f"{serve(world)}-manifest.json"
    facts = json.loads(manifest.read_text())
    facts |= {"ended_at": "2031-01-01T00:00:00.000+00:00", "seal": ""}
    facts["seal"] = hashlib.sha256((json.dumps(facts, ensure_ascii=False) + "\n").encode()).hexdigest()
    manifest.write_text(json.dumps(facts, ensure_ascii=False) + "\n")
    assert run(world, capsys, "report", world.last)[0] != 0
    assert "journal names" in run(world, capsys, "verify", world.last)[1]
    (folder(world) / "journal.ndjson").unlink()
    code, out = run(world, capsys, "verify", world.last)
    assert code == 1 and "every operation keeps one" in out
    assert run(world, capsys, "report", world.last)[0] != 0
    assert not list(folder(world).glob("*report*"))


def test_failed_and_cancelled_runs_leave_a_complete_bundle_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = workspace(tmp_path / "1", Wrong())
    assert qualify(failed) == "undone"
    cancelled = workspace(
        tmp_path / "2", Chat(lambda n: cancelled.box.operations.ask_cancel(cancelled.last, "enough"))
    )
    assert qualify(cancelled) == "undone"
    for world, verdict in ((failed, "failed"), (cancelled, "cancelled")):
        _, (row,) = told(world, capsys, "list")
        assert (row["state"], row["passed"]) == ("complete", False)
        _, shown = told(world, capsys, "show", row["id"])
        assert shown["results"][-1]["verdict"] == verdict
        code, (checked,) = told(world, capsys, "verify", row["id"])
        assert (code, checked["problems"]) == (0, [])


def test_a_run_that_was_killed_before_its_manifest_is_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    (folder(world) / f"{serve(world)}-manifest.json").unlink()
    _, (row,) = told(world, capsys, "list")
    assert row["state"] == "partial"
    code, out = run(world, capsys, "verify", world.last)
    assert code == 1 and "is missing: the bundle is partial" in out
    assert main(["--workspace", str(world.tmp.parent), "evidence", "show", world.last]) == 2
    assert "without one a bundle is partial" in capsys.readouterr().err


def test_a_bundle_or_a_journal_that_was_changed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    results = folder(world) / f"{serve(world)}-results.json"
    before = results.read_text()
    results.write_text(before.replace('"passed"', '"failed"', 1))
    code, out = run(world, capsys, "verify", world.last)
    assert code == 1 and f"problem: {results.name}: is not the file of the manifest: another SHA-256" in out
    assert main(["--workspace", str(world.tmp.parent), "evidence", "report", world.last]) == 1
    assert "is not sound, so nothing is reported" in capsys.readouterr().err
    results.write_text(before)
    journal = folder(world) / "journal.ndjson"
    journal.write_text(journal.read_text().replace("evidence kept", "evidence held"))
    code, out = run(world, capsys, "verify", world.last)
    assert code == 1 and "does not follow line" in out


def test_reports_lie_beside_the_bundle_and_are_the_same_bytes_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    _, made = told(world, capsys, "report", world.last, "--html")
    first = {Path(path).name: Path(path).read_bytes() for path in made["files"]}
    assert set(first) == {f"{serve(world)}-{name}" for name in REPORTS}
    assert all((folder(world) / name).is_file() for name in first)
    told(world, capsys, "report", world.last, "--html")
    assert {name: (folder(world) / name).read_bytes() for name in first} == first
    assert told(world, capsys, "verify")[0] == 0
    assert b"Qualification of a" in first[f"{serve(world)}-report.md"]


def test_a_copied_folder_is_found_by_path_and_a_kept_one_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    kept = world.tmp.parent / "evidence" / "from-elsewhere"
    kept.mkdir(parents=True)
    for path in folder(world).iterdir():
        if path.name.startswith(serve(world)) or path.name == "plan.json":
            shutil.copy(path, kept)
    for name in (str(kept), "from-elsewhere", f"from-elsewhere/{serve(world)}"):
        code, (checked,) = told(world, capsys, "verify", name)
        assert (code, checked["problems"]) == (0, []) and "made anew" in checked["unchecked"][0]
    assert len(told(world, capsys, "list")[1]) == 2


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (("show", "nothing"), 2, "no bundle 'nothing'"),
        (("show",), 2, "needs a bundle"),
        (("report", "../.."), 2, "no bundle"),
    ],
)
def test_what_cannot_be_found_is_said(
    argv: tuple[str, ...], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workspace(tmp_path / "box")
    assert main(["--workspace", str(tmp_path / "box"), "evidence", *argv]) == code
    assert says in capsys.readouterr().err


def test_read_only_writes_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    assert main(["--workspace", str(world.tmp.parent), "--read-only", "evidence", "report", world.last]) == 3
    assert not list(folder(world).glob("*report*"))


def test_two_serves_of_one_operation_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = workspace(tmp_path, Chat())
    qualify(world)
    for name in ("identity.json", "observations.ndjson", "results.json", "manifest.json"):
        shutil.copy(folder(world) / f"{serve(world)}-{name}", folder(world) / f"0123456789ab-{name}")
    assert main(["--workspace", str(world.tmp.parent), "evidence", "show", world.last]) == 2
    said = capsys.readouterr().err
    assert f"{world.last}/0123456789ab" in said and f"{world.last}/{serve(world)}" in said
