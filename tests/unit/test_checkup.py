"""What `doctor` prints can be pasted anywhere, and says of each line whether it must be mended."""

from __future__ import annotations

import pytest

from anvil_tui.core.checkup import Finding, checkup_lines, colours, good, pasteable

NAMES = {"gpu-box-7": "(host)", "ada": "(user)"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/people/ada/ws/anvil.toml:3: box", "~/ws/anvil.toml:3: box"),
        ("/people/adamant/x", "/people/adamant/x"),
        ("/srv/ada/x", "/srv/(user)/x"),
        ("ssh://ada@gpu-box-7.example.net:22/run: refused", "ssh://(host)/run: refused"),
        ("copy ada@gpu-box-7:/etc/key holds it", "copy (user)@(host):/etc/key holds it"),
        ("gpu-box-7 answers", "(host) answers"),
        ("http://192.0.2.14:91 and 127.0.0.1:81 and 0.0.0.0", "http://(address):91 and 127.0.0.1:81 and 0.0.0.0"),
        ("from 2001:db8::ff00:42:8329 now", "from (address) now"),
        *((plain, plain) for plain in ("driver 580.95.05, HAProxy 2.6.12-1", "GPU 0000:2b:00.0 at 12:30:45")),
        ("image x@sha256:" + "a" * 64, "image x@sha256:" + "a" * 64),
        ("HF_TOKEN=hf_" + "z" * 30, "HF_TOKEN=***"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)  # fmt: skip
def test_nothing_gives_a_person_or_a_machine_away(text: str, want: str) -> None:
    made = pasteable(Finding("p", "ok", text, text), "/people/ada", NAMES)
    assert made.says == made.todo == want


def test_what_is_not_needed_does_not_fail() -> None:
    assert good([Finding("a", "ok", ""), Finding("b", "unknown", ""), Finding("c", "missing", "", needed=False)])
    assert not good([Finding("c", "missing", "")])


def test_each_line_has_its_state_and_what_to_do() -> None:
    lines = list(
        checkup_lines([Finding("docker", "missing", "no socket", "start it"), Finding("disk", "ok", "9 MiB")])
    )
    assert lines == [
        "missing docker      no socket",
        "                    do: start it",
        "ok      disk        9 MiB",
    ]


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "16 million colours"),
        ({"TERM": "xterm-256color"}, "256 colours"),
        ({"TERM": "linux"}, "16 colours"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": ""}, "no colour (NO_COLOR)"),
    ],
)
def test_colours(environ: dict[str, str], want: str) -> None:
    assert colours(environ) == want
