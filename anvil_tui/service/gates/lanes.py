"""Capacity and performance gates: rows of many timed requests, judged by predeclared rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from anvil_tui.core import lane_rules
from anvil_tui.core.chat import (
    FORCED_LENGTH,
    RUNNING_USAGE,
    ChatAnswer,
    ChatRequest,
    decode_seeds_tok_s,
    decode_tok_s,
    request_body,
)
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Observation, Suite
from anvil_tui.core.lane_rules import Held, Shape
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.measure import row_of
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.verdicts import OK, Judged, delivered, failed
from anvil_tui.ports import LoadAnswer, LoadGenerator, LoadLane, LoadRequest, LoadRun
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.calibrate import Scale, calibrate
from anvil_tui.service.gates.engine_watch import EngineWatch
from anvil_tui.service.gates.lane_prompts import PromptSet
from anvil_tui.service.gates.session import (
    Finding,
    GateParts,
    GateTarget,
    GateWork,
    Session,
    thinking_control,
    thinking_wanted,
)

TRIES = 2
PAUSE_S = 1.0
WARMUP_TOKENS = 16
TWICE_TOKENS = 1024
KEPT_GAPS = 512
EXCERPT = 200

_CALIBRATED_AS = "lane words"
_TELLS_AS_IT_GOES = (EngineKind.VLLM, EngineKind.SGLANG)


def why_not(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    if parts.load is None:
        return "there is no load generator"
    return lane_rules.why_not(gate, target.recipe)


def run_lanes(session: Session, gate: Gate, n: int) -> Finding:
    """All rows of the gate, after calibration and warm-up, which are kept apart."""
    load = session.parts.load
    if load is None:
        return Finding(Judged("errored", None, "there is no load generator"), ())
    work = _Work(session, gate, load, lane_rules.planned(gate, session.target.recipe))
    judged = work.prepare() or work.rows()
    return Finding(judged, tuple(work.seen), tuple(work.measured))


def completed(answer: ChatAnswer, asked: int) -> Judged:
    """Whether a request of a lane was answered to its end. What it says is no matter here."""
    if answer.error == "timeout":
        return failed(FailureClass.STREAM, delivered(answer, asked).note)
    if answer.error:
        return delivered(answer, asked)
    if not (answer.content or answer.reasoning or answer.tool_calls):
        return failed(FailureClass.NO_ANSWER, "the answer is empty")
    if answer.finish_reason not in ("length", "stop", "tool_calls"):
        return failed(FailureClass.FINISH_REASON, f"finish reason is {answer.finish_reason or 'not given'}")
    if not answer.token_times_s:
        return failed(FailureClass.STREAM, "a stream was asked for, the answer came as one message")
    return OK


@dataclass(slots=True)
class _Work:
    """One gate under way. `done` requests of its rows have ended, warm-up and calibration not counted;
    `paused`: since the row began somebody paused the run.
    """

    session: Session
    gate: Gate
    load: LoadGenerator
    shapes: tuple[Shape, ...]
    scale: Scale = Scale(0.0, 1.0)
    tells: bool = False
    done: int = 0
    paused: bool = False
    seen: list[Observation] = field(default_factory=list)
    measured: list[LaneRow] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    # before the rows

    def prepare(self) -> Judged | None:
        """The scale of the prompts, whether the engine tells cached tokens, the warm-up; why it cannot go on."""
        fewest = min(shape.tokens for shape in self.shapes)
        # A unit is one word here, and not a sentence of about 15 tokens.
        found = calibrate(
            self.session, self.gate, lambda words: PromptSet("unique", words, "calibration").text(0),
            kind=_CALIBRATED_AS, tokens=15 * fewest,
        )  # fmt: skip
        self.seen += found.observations
        if found.scale is None:
            return found.judged
        self.scale = found.scale
        return self._find_whether_it_tells(fewest) or self._warm_up()

    def _find_whether_it_tells(self, fewest: int) -> Judged | None:
        """The same prompt twice: vLLM and SGLang name cached tokens on a flag, and only when there are any."""
        memory = self.session.memory
        if any(o.raw.get("cached_tokens") is not None for o in self.seen):
            memory["tells_cached"] = True
        if "tells_cached" not in memory:
            words = self._words(min(TWICE_TOKENS, fewest))
            text = PromptSet("unique", words, f"{self.session.salt}/twice").text(0)
            for _ in range(2):
                judged, answer = self._single("cache probe", text, 1)
                if not judged.ok:
                    return judged
            memory["tells_cached"] = answer.cached_tokens is not None
        self.tells = memory["tells_cached"]
        return None

    def _warm_up(self) -> Judged | None:
        """Also corrects the scale, so its salt is the same in every run: another one may count a token more, and
        then the rows would have other prompts than those of the run that they are compared with."""
        shape = self.shapes[0]
        texts = PromptSet("unique", self._words(shape.tokens), f"{self.gate.id}/warm-up")
        for n in range(1, self.gate.warmup + 1):
            judged, answer = self._single("warm-up", texts.text(n), min(WARMUP_TOKENS, shape.completion))
            if not judged.ok:
                return judged
            if answer.prompt_tokens:
                self.scale = self.scale.corrected(texts.words, answer.prompt_tokens)
        return None

    def _single(self, purpose: str, text: str, limit: int) -> tuple[Judged, ChatAnswer]:
        """One request outside of every row."""
        finding, answer = self.session.ask(
            self.gate, 0, lambda a: delivered(a, limit) if a.error else OK, partial=True, stream=True,
            messages=(prompts.user(text),), max_tokens=limit,
        )  # fmt: skip
        self.seen += [replace(o, note=o.note or purpose, raw={**o.raw, "purpose": purpose})
                      for o in finding.observations]  # fmt: skip
        return finding.judged, answer

    def _words(self, tokens: int, cut: int = 0) -> int:
        """Words of a prompt of at most so many tokens."""
        return max(1, int((tokens - self.scale.base) / self.scale.each) - cut)

    # the rows

    def rows(self) -> Judged:
        cancelled = False
        for shape in self.shapes:
            cancelled = self.session.cancelled()
            if cancelled:
                break
            try:
                cancelled = self._row(shape)
            except AnvilError as why:
                self.judged.append(Judged("errored", None, self.session.safe(f"{shape.label}: {why}")))
                break
            if cancelled or self.session.dead:
                break
        return lane_rules.verdict(self.judged, len(self.shapes), cancelled)

    def _row(self, shape: Shape) -> bool:
        """Measures, judges and shows one row. Whether it was cancelled."""
        error_ms = self._error_ms(shape.streams)
        made, run, watch = self._measure(shape)
        if self.tells:
            answers = tuple(replace(a, answer=_named(a.answer)) for a in run.answers)
            run = replace(run, answers=answers)
        short = len(run.answers) < shape.requests
        outcomes = [self._judge(a.answer, shape) for a in run.answers]
        row = self._row_of(shape, made, run, watch, error_ms)
        self._keep(shape, made, run, watch, row, outcomes)
        self.session.note_memory()
        broken = [j for j in outcomes if not j.ok]
        if broken:
            broken = self._with_death(broken)
        if not short or broken:
            judged = lane_rules.judge_row(self.gate, row, broken)
            doubt = lane_rules.doubt(self.gate, shape, self.session.target.start.pool, watch.kv_odd)
            if judged.ok and doubt:
                judged = Judged("unverified", None, f"{judged.note}; {doubt}")
            self.judged.append(judged)
        self.done += shape.requests
        self.measured.append(row)
        self.session.progress(self.done, self._of, row)
        return short and self.session.cancelled()

    @property
    def _of(self) -> int:
        return sum(shape.requests for shape in self.shapes)

    def _error_ms(self, streams: int) -> tuple[float, float]:
        known: dict[int, tuple[float, float]] = self.session.memory.setdefault("error_ms", {})
        if streams not in known:
            known[streams] = self.load.error_ms(streams)
        return known[streams]

    def _measure(self, shape: Shape) -> tuple[PromptSet, LoadRun, EngineWatch]:
        """The row's requests; once more when the engine counts too many tokens in them, or a pause spoilt them."""
        salt, cut, refused = f"{self.session.salt}/{self.gate.id}/{shape.label}", 0, 0
        for attempt in count(1):
            self.paused = False
            made = PromptSet(shape.prefix, self._words(shape.tokens, cut), f"{salt}/{attempt}")
            self._prime(shape, made)
            with EngineWatch(self.session) as watch:
                texts = [made.text(n) for n in range(1, shape.requests + 1)]
                run = self._load(shape, texts, shape.completion, shape.burst)
            if self.paused and not self.session.cancelled():
                continue
            over = [a.answer.overflow for a in run.answers if a.answer.overflow]
            if not over or refused == TRIES:
                break
            refused += 1
            cut += 1 + math.ceil(max(asked - allowed for asked, allowed in over) / self.scale.each)
        return made, run, watch

    def _prime(self, shape: Shape, made: PromptSet) -> None:
        """What the cache is to hold is sent once before: every prompt (`warm`), or the common head (`shared`)."""
        if shape.prefix == "warm":
            texts = [made.text(n) for n in range(1, shape.requests + 1)]
            self._load(shape, texts, 1, burst=False, quiet=True)
        elif shape.prefix == "shared":
            self._load(shape, [made.text(0)], 1, burst=False, quiet=True)

    def _load(self, shape: Shape, texts: list[str], limit: int, burst: bool, quiet: bool = False) -> LoadRun:
        url, key = self.session.target.way(self.gate.routed)
        requests = tuple(LoadRequest(n, self._body(text, limit)) for n, text in enumerate(texts, 1))
        lane = LoadLane(url, requests, shape.streams, self.gate.timeout_s, key, burst)

        def on_done(ended: int) -> None:
            if not quiet:
                self.session.progress(self.done + ended, self._of, None)

        return self.load.run(lane, on_done, self._stopped)

    def _stopped(self) -> bool:
        """Asked all the time while a lane runs. An answer that takes long was a pause: nobody listened."""
        began = self.session.clock.monotonic_s()
        gone = self.session.cancelled()
        self.paused = self.paused or self.session.clock.monotonic_s() - began > PAUSE_S
        return gone or self.paused

    def _body(self, text: str, limit: int) -> Mapping[str, object]:
        recipe = self.session.target.recipe
        extra = dict(thinking_control(recipe.engine, thinking_wanted(self.gate, recipe)))
        extra |= FORCED_LENGTH if self._forced else {}
        extra |= RUNNING_USAGE if recipe.engine in _TELLS_AS_IT_GOES else {}
        request = ChatRequest(
            self.session.target.model(self.gate.routed), (prompts.user(text),), max_tokens=limit, stream=True,
            extra=extra,
        )  # fmt: skip
        return request_body(request)

    @property
    def _forced(self) -> bool:
        return self.session.target.recipe.engine is not EngineKind.OPENAI

    # what came of them

    def _judge(self, answer: ChatAnswer, shape: Shape) -> Judged:
        judged = completed(answer, shape.completion)
        if judged.ok and self.gate.routed:
            judged = self.session.came_from_the_slot(answer)
        return replace(judged, note=self.session.safe(judged.note))

    def _with_death(self, broken: list[Judged]) -> list[Judged]:
        """A lane that the engine died under is the serve's failure, whatever its clients saw of it."""
        self.session.dead = self.session.dead or self.session.death()
        if not self.session.dead:
            return broken
        first = next((j for j in broken if j.failure), broken[0])
        return [failed(first.failure or FailureClass.STREAM, f"{self.session.dead}; {first.note}")]

    def _row_of(
        self, shape: Shape, made: PromptSet, run: LoadRun, watch: EngineWatch, error_ms: tuple[float, float]
    ) -> LaneRow:
        good = [a.answer for a in run.answers if self._judge(a.answer, shape).ok]
        held = Held(math.ceil(self.scale.base), self.scale.each * made.head, self.scale.each * made.words)
        cache, why_cache = lane_rules.cache_state(shape.prefix, [a.cached_tokens for a in good], self.tells, held)
        output, why_output = lane_rules.output_state(
            self._forced, shape.completion, [a.completion_tokens for a in good]
        )
        row = row_of(
            run, lane=self.gate.id, streams=shape.streams, label=shape.label,
            loop="burst" if shape.burst else "closed", nominal_tokens=shape.tokens, output=output, cache=cache,
            error_ms=error_ms, failed=lambda answer: not self._judge(answer, shape).ok,
        )  # fmt: skip
        if watch.running_peak:  # 0: the lane was over between two readings, so that they tell nothing of it
            row = replace(
                row, running_peak=watch.running_peak, waiting_peak=watch.waiting_peak, kv_peak=watch.kv_peak,
                preempted=watch.preempted,
            )  # fmt: skip
        notes = lane_rules.notes_of(shape, self.session.target.recipe, row, watch.readings, watch.queued)
        start = self.session.target.start
        notes += lane_rules.notes_of_start(shape, start.pool, start.limit, start.layers, watch.kv_odd)
        if len(run.answers) < shape.requests:
            notes.insert(0, f"cut short after {len(run.answers)} of {shape.requests} requests")
        return replace(row, notes=(*(n for n in (why_cache, why_output) if n and good), *notes))

    def _keep(
        self, shape: Shape, made: PromptSet, run: LoadRun, watch: EngineWatch, row: LaneRow, outcomes: list[Judged]
    ) -> None:
        """One observation of the row's circumstances, then one a request."""
        same = {k: v for k, v in self._body("", shape.completion).items() if k not in ("model", "messages")}
        facts = {
            "purpose": "row", "row": shape.label, "request": same,
            "prompts": made.digest(shape.requests), "words": made.words,
            "completion_tokens": shape.completion, "tells_cached": self.tells,
            "engine_readings": watch.readings, "queued_readings": watch.queued,
            "engine_samples": [list(sample) for sample in watch.samples],
        }  # fmt: skip
        self.seen.append(Observation(0, row.failed == 0, note="; ".join(row.notes), raw=facts))
        for a, judged in zip(run.answers, outcomes, strict=True):
            self.seen.append(self._observation(self.done + a.n, shape, a, judged))

    def _observation(self, n: int, shape: Shape, a: LoadAnswer, judged: Judged) -> Observation:
        answer, times = a.answer, a.answer.token_times_s
        gaps = [round(1000 * (late - early), 1) for early, late in pairwise(times)]
        raw = {
            "purpose": "request", "row": shape.label, "prompt": a.n, "began_s": round(a.began_s, 6),
            "outcome": judged.outcome, "status": answer.status,
            "finish_reason": self.session.safe(answer.finish_reason or ""),
            "cached_tokens": answer.cached_tokens, "reasoning_tokens": answer.reasoning_tokens,
            "client_queue_s": answer.client_queue_s, "end_s": answer.end_s, "chunks": len(times),
            "first_tokens": answer.first_tokens, "gaps_ms": gaps[:KEPT_GAPS],
            "decode_seeds_tok_s": decode_seeds_tok_s(answer), "notes": list(answer.notes),
            "backend": self.session.safe(self.session.target.origin(answer).slot) if self.gate.routed else "",
        }  # fmt: skip
        return Observation(
            n=n, ok=judged.ok, failure=judged.failure, note=judged.note,
            prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens,
            ttft_any_s=answer.ttft_any_s, ttft_visible_s=answer.ttft_visible_s, e2e_s=answer.e2e_s,
            decode_tok_s=decode_tok_s(answer), excerpt=self.session.safe(answer.content[:EXCERPT]), raw=raw,
        )  # fmt: skip


def _named(answer: ChatAnswer) -> ChatAnswer:
    """Of an engine that tells cached tokens only when there are any: none told is none."""
    told = answer.cached_tokens is not None or answer.prompt_tokens is None
    return answer if told else replace(answer, cached_tokens=0)


LANES: Mapping[GateKind, GateWork] = {
    kind: GateWork(run_lanes, why_not)
    for kind in ("capacity", "depth-sweep", "ladder", "endurance", "prefix-cache")
}
