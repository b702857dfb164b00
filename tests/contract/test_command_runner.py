"""Real programs as command gates: what they get, how they end, what is kept of what they say."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters import command_runner
from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.core.errors import EffectFailed
from anvil_tui.ports import Command, CommandRun
from tests.support.wait import wait_until

SECRET = "planted-Secret+value/1234567890"
NEVER = lambda: False  # noqa: E731


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


def script(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def run(
    folder: Path, text: str, *args: str, timeout_s: float = 30, environ: dict[str, str] | None = None, **more: Any
) -> CommandRun:
    known = {"PATH": os.environ["PATH"], **(environ or {})}
    made = Command((sys.executable, script(folder, text), *args), timeout_s, **more)
    return ChildCommands(folder, known).run(made, NEVER)


def alive(pid: int) -> bool:
    """A zombie that nobody has reaped yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_true_is_exit_code_0_and_nothing_said(here: Path) -> None:
    ran = ChildCommands(here).run(Command(("true",), 10), NEVER)
    assert (ran.exit_code, ran.ended, ran.stdout, ran.stderr, ran.written, ran.trouble) == (
        0,
        "exit",
        "",
        "",
        None,
        "",
    )


def test_an_exit_code_and_both_streams_are_kept(here: Path) -> None:
    ran = run(here, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (3, "out\n", "err\n")


def test_the_environment_is_what_was_named_and_nothing_else(here: Path) -> None:
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    ran = run(here, text, env=("TZ", "OURS"), given={"OURS": "11"}, environ={"TZ": "UTC", "OTHER": "x"})
    seen = json.loads(ran.stdout)
    seen.pop("LC_CTYPE", None)  # Python's own, in the C locale
    assert seen == {"TZ": "UTC", "OURS": "11"}


def test_stdin_is_at_its_end_and_there_is_no_terminal(here: Path) -> None:
    """A client that waits for its input would never send a request (the ssh case of the records)."""
    ran = run(here, """
        import os, sys
        print(repr(sys.stdin.read()), os.getsid(0) == os.getpid(), os.getcwd())
        try:
            os.open("/dev/tty", os.O_RDWR)
        except OSError:
            print("no terminal")
    """)  # fmt: skip
    assert ran.stdout == f"'' True {here}\nno terminal\n"


def test_the_result_file_is_read_and_its_folder_is_gone(here: Path) -> None:
    ran = run(here, "import sys; open(sys.argv[1], 'w').write('{\"acc\": 0.5}'); print(sys.argv[1])", "{out}")
    assert ran.written == '{"acc": 0.5}'
    assert not Path(ran.stdout.strip()).parent.exists()


def test_a_result_that_cannot_be_used_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "MAX_RESULT", 1000)
    ran = run(here, "import sys; open(sys.argv[1], 'w').write('x' * 1001)", "{out}")
    assert (ran.written, ran.trouble) == (None, "the result file is larger than 1,000 bytes")
    ran = run(here, "import os, sys; os.symlink('/etc/passwd', sys.argv[1])", "{out}")
    assert (ran.written, ran.trouble) == (None, "the result is no plain file")


def test_a_secret_is_masked_wherever_it_comes_out(here: Path) -> None:
    text = """
        import json, os, sys
        from urllib.parse import quote
        key = os.environ["CLIENT"]
        print("key", key, quote(key, safe=""))
        print(json.dumps({"said": key, "n": 1}))
        print("Traceback: bad", key, file=sys.stderr)
        open(sys.argv[1], "w").write(json.dumps({"deep": [{"x": "a" + key}], "api_key": "unknown-to-us", "n": 5}))
    """
    ran = run(here, text, "{out}", env=("CLIENT",), environ={"CLIENT": SECRET})
    for kept in (ran.stdout, ran.stderr, ran.written or ""):
        assert SECRET not in kept and "1234567890" not in kept and "unknown-to-us" not in kept
        assert "***" in kept
    assert json.loads(ran.stdout.splitlines()[1]) == {"said": "***", "n": 1}
    assert json.loads(ran.written or "") == {"deep": [{"x": "a***"}], "api_key": "***", "n": 5}


def test_huge_output_is_cut_to_its_end_and_no_piece_of_a_secret_is_left_at_the_cut(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command_runner.KEPT_BYTES, "stdout", 10_000)
    text = """
        import os
        for n in range(200_000):
            print(os.environ["CLIENT"], end="" if n % 7 else chr(10))
        print("end")
    """
    ran = run(here, text, env=("CLIENT",), environ={"CLIENT": SECRET})
    assert ran.exit_code == 0 and len(ran.stdout) < 10_200 and ran.stdout.endswith("end\n")
    assert ran.stdout.startswith("[6,") and "the last of them" in ran.stdout
    assert set(ran.stdout.split("\n", 1)[1].replace("end", "").replace("\n", "")) == {"*"}


HANGS = """
    import os, signal, subprocess, sys, time
    if sys.argv[1] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open("pids.tmp", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename("pids.tmp", "pids")
    print("started", flush=True)
    if sys.argv[1] == "leaves":
        sys.exit(0)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["polite", "deaf"])
def test_at_the_deadline_the_whole_group_ends(here: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "TERM_GRACE_S", 0.3)
    ran = run(here, HANGS, how, timeout_s=2)
    assert (ran.exit_code, ran.ended, ran.stdout) == (None, "deadline", "started\n")
    pids = [int(p) for p in (here / "pids").read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: not any(alive(p) for p in pids), "the program and its child are gone")


def test_a_child_that_outlives_its_program_is_ended_and_does_not_hold_us(here: Path) -> None:
    ran = run(here, HANGS, "leaves", timeout_s=60)
    assert (ran.exit_code, ran.ended) == (0, "exit")
    assert ran.elapsed_s < 30
    pids = [int(p) for p in (here / "pids").read_text().split()]
    wait_until(lambda: not any(alive(p) for p in pids), "the child is gone")


def test_a_cancel_ends_it_and_a_pause_does_not_stop_its_clock(here: Path) -> None:
    paused = threading.Event()
    made = Command((sys.executable, script(here, HANGS), "polite"), 60)
    ran = ChildCommands(here).run(made, lambda: (here / "pids").exists())
    assert (ran.exit_code, ran.ended) == (None, "cancelled")
    began = time.monotonic()
    quick = Command((sys.executable, script(here, "print('done')")), 60)
    try:
        assert ChildCommands(here).run(quick, lambda: paused.wait(60)).stdout == "done\n"
    finally:
        paused.set()
    assert time.monotonic() - began < 30


def test_what_can_be_known_before_it_starts(here: Path) -> None:
    runner = ChildCommands(here, {"PATH": os.environ["PATH"], "EMPTY": ""})
    (here / "data").write_bytes(b"right")
    right, wrong = hashlib.sha256(b"right").hexdigest(), hashlib.sha256(b"wrong").hexdigest()
    assert runner.why_not(Command(("true",), 1, fixtures={"data": right})) == ""
    assert "no program 'no-such-thing'" in runner.why_not(Command(("no-such-thing",), 1))
    assert "no program './data'" in runner.why_not(Command(("./data",), 1))
    assert runner.why_not(Command(("true",), 1, env=("EMPTY",))).startswith("env: EMPTY is not set")
    assert runner.why_not(Command(("true",), 1, env=("OURS",), given={"OURS": "x"})) == ""
    assert f"data has {right}, not {wrong}" in runner.why_not(Command(("true",), 1, fixtures={"data": wrong}))
    assert "gone cannot be read" in runner.why_not(Command(("true",), 1, fixtures={"gone": right}))
    with pytest.raises(EffectFailed, match="no program"):
        runner.run(Command(("no-such-thing",), 1), NEVER)
    (here / "bad").write_text("no interpreter line, no program")
    (here / "bad").chmod(0o755)
    with pytest.raises(EffectFailed, match="cannot be started"):
        runner.run(Command(("./bad",), 1), NEVER)
