"""A bundle is checked offline: any changed byte, any missing or added file, any result its observations deny."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from anvil_tui.core.bundle import REPORTS, results_text
from anvil_tui.core.gates import GateResult, Verdict
from anvil_tui.core.lanes import Spread
from anvil_tui.core.verify import Checked, check, report_texts
from tests.support.bundles import PREFIX, measured, results, sealed_anew
from tests.unit.test_bundle import first_schema

FILES = measured()
MANIFEST = f"{PREFIX}manifest.json"
ANCHOR = hashlib.sha256(FILES[MANIFEST].encode()).hexdigest()


def checked(files: Mapping[str, str | bytes], anchor: str | None = ANCHOR) -> Checked:
    return check({n: d.encode() if isinstance(d, str) else d for n, d in files.items()}, PREFIX, anchor)


def test_a_sound_bundle_has_no_problem_and_nothing_unproven() -> None:
    assert checked(FILES) == Checked((), ())
    reports = report_texts(FILES, PREFIX, pages=True)
    assert set(reports) == {PREFIX + name for name in REPORTS}
    assert checked({**FILES, **reports}).problems == ()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_bit_anywhere_is_found(name: str) -> None:
    """Every third byte of the manifest, every 29th of the others; a hash makes no difference between bytes."""
    data = FILES[name].encode()
    for at in range(0, len(data), 3 if name == MANIFEST else 29):
        flipped = data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]
        assert checked({**FILES, name: flipped}, None).problems, f"byte {at} of {name}"


@pytest.mark.parametrize("name", REPORTS)
def test_a_changed_report_is_found(name: str) -> None:
    text = report_texts(FILES, PREFIX, pages=True)[PREFIX + name]
    for at in (0, len(text) // 2, len(text) - 1):
        changed = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        assert any(PREFIX + name in p for p in checked({**FILES, PREFIX + name: changed}).problems)


def test_a_ledger_that_points_nowhere_is_named() -> None:
    name = f"{PREFIX}report-claims.json"
    text = report_texts(FILES, PREFIX, pages=False)[name].replace("/identity/recipe_digest", "/identity/elsewhere")
    found = checked({**FILES, name: text}).problems
    assert any("has no source" in p and "/identity/elsewhere" in p for p in found)


@pytest.mark.parametrize("name", sorted(n for n in FILES if n != MANIFEST))
def test_missing_and_cut_files_are_named(name: str) -> None:
    gone = {n: t for n, t in FILES.items() if n != name}
    assert f"{name}: is missing" in checked(gone).problems
    (cut, *_) = [p for p in checked({**FILES, name: FILES[name][:-5]}).problems if name in p]
    assert "is cut off" in cut


def test_added_files_and_a_partial_bundle_are_named() -> None:
    assert checked({**FILES, f"{PREFIX}more.json": "{}"}).problems == (f"{PREFIX}more.json: is in no manifest",)
    partial = checked({n: t for n, t in FILES.items() if n != MANIFEST})
    assert partial.problems == (f"{MANIFEST}: is missing: the bundle is partial",)


def test_a_bundle_made_anew_as_a_whole_is_not_the_one_of_the_journal() -> None:
    made = results()
    made = (replace(made[0], reason="another reason"), *made[1:])
    anew = sealed_anew({**FILES, f"{PREFIX}results.json": results_text(made)})
    assert checked(anew, None).problems == () and "made anew" in checked(anew, None).unchecked[0]
    assert checked(anew).problems == (
        f"{MANIFEST}: is not the one that the operation's journal names ({ANCHOR[:12]})",
    )
    assert "journal names (none)" in checked(FILES, "").problems[0]


def row_of(result: GateResult, **change: object) -> GateResult:
    return replace(result, rows=(replace(result.rows[0], **change), *result.rows[1:]))  # type: ignore[arg-type]


Change = Callable[[GateResult], GateResult]


@pytest.mark.parametrize(
    ("n", "change", "problem"),
    [
        (0, lambda r: replace(r, passed=3), "json: says 3 passed, its observations show 2"),
        (0, lambda r: replace(r, verdict=Verdict.PASSED), "json: is passed with 2 passed, its rule asks for 3"),
        (0, lambda r: replace(r, of=2), "json: says of 2, there are observations of 3"),
        (
            0,
            lambda r: replace(r, failures=("context_rejected",)),
            "failure context_rejected, which no observation",
        ),
        (1, lambda r: replace(r, accepted=False), "effort: accepted is False, its rule accepts unverified"),
        (2, lambda r: row_of(r, decode_tok_s=Spread(3, 50.0, 52.5, 52.5)), "depth row 2K: decode_tok_s says"),
        (2, lambda r: row_of(r, ttft_any_s=None), "depth row 2K: ttft_any_s says None"),
        (2, lambda r: row_of(r, failed=1), "depth row 2K: says 1 of 3 failed, its requests show 0 of 3"),
        (
            2,
            lambda r: row_of(r, instrument=replace(r.rows[0].instrument, invalid="late")),
            "depth: is passed, yet 2K: late; its times cannot be used",
        ),
        (2, lambda r: replace(r, rows=()), "depth: is passed without a row"),
        (3, lambda r: replace(r, gate="other"), "other: is not in the suite"),
        (4, lambda r: replace(r, verdict=Verdict.FAILED), "own: is failed with 1 passed, its rule asks for 1"),
    ],
)
def test_results_that_the_observations_deny_are_named_even_under_good_hashes(
    n: int, change: Change, problem: str
) -> None:
    made = list(results())
    made[n] = change(made[n])
    observations = FILES[f"{PREFIX}observations.ndjson"].replace('"gate": "room"', f'"gate": "{made[3].gate}"')
    changed = {f"{PREFIX}results.json": results_text(made), f"{PREFIX}observations.ndjson": observations}
    assert any(problem in p for p in checked(sealed_anew({**FILES, **changed}), None).problems)


def test_a_softened_rule_and_other_prompts_are_seen_under_good_hashes() -> None:
    name = f"{PREFIX}identity.json"
    softer = sealed_anew({**FILES, name: FILES[name].replace('"repeat": 3', '"repeat": 2')})
    assert any("its digest is not that of the gates kept here" in u for u in checked(softer, None).unchecked)
    strange = sealed_anew({**FILES, name: FILES[name].replace('"kind": "reserve"', '"kind": "strange"')})
    assert any("none that this version can read" in p for p in checked(strange, None).problems)
    nameless = sealed_anew({**FILES, name: FILES[name].replace('"id": "room", ', "")})
    assert any("none that this version can read" in p for p in checked(nameless, None).problems)
    seen = f"{PREFIX}observations.ndjson"
    other = sealed_anew({**FILES, seen: FILES[seen].replace('"prompts": "sha256:aa"', '"prompts": "sha256:ab"')})
    assert any(p.startswith("prompts: the identity says sha256:") for p in checked(other, None).problems)


def test_a_lane_that_breaks_its_own_rule_is_not_passed() -> None:
    name = f"{PREFIX}identity.json"
    rule = FILES[name].replace('"id": "depth",', '"id": "depth", "decode_at_least_tok_s": 50.0,')
    found = checked(sealed_anew({**FILES, name: rule}), None).problems
    assert found == ("depth: is passed, yet 16K: median decode 41.0 tok/s, at least 50 asked (-18.0 %)",)


def test_the_verdict_on_the_whole_and_gates_left_out_are_checked() -> None:
    assert (
        "passed: the manifest says True, the verdicts say False" in checked(measured(passed=True), None).problems
    )
    short = checked(measured(results()[:4]), None).problems
    assert short == ("results: gate own of the suite has none",)


def test_rows_whose_requests_are_not_there_are_unproven_and_not_wrong() -> None:
    made = list(results())
    made[2] = replace(made[2], observations=())
    found = checked(measured(tuple(made)), None)
    assert found.problems == () and "depth: no request names row 2K, 16K" in found.unchecked


def test_a_bundle_of_the_first_schema_is_checked_as_far_as_it_goes() -> None:
    files = first_schema()
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in files.items() if "manifest" not in n}
    files["x-manifest.json"] = json.dumps(json.loads(files["x-manifest.json"]) | {"files": digests})
    data = {n: t.encode() for n, t in files.items()}
    assert check(data, "x-").problems == () and "no seal" in check(data, "x-").unchecked[0]
    found = check({**data, "x-results.json": data["x-results.json"].replace(b"1/1", b"1/2")}, "x-").problems
    assert found == ("x-results.json: its SHA-256 is not the one in x-manifest.json",)
