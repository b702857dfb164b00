"""Gates of one short question: its words, its object, its end, its thinking. Each makes repeat `n` of its gate."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import Gate, GateKind, Suite
from anvil_tui.core.protocol import cut_at, schema_json, stopped_before, thought_as
from anvil_tui.core.verdicts import Judged, check, strict_json, word_is
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.operational import container_state
from anvil_tui.service.gates.session import (
    Finding,
    GateParts,
    GateTarget,
    GateWork,
    Session,
    budgets,
    thinking_wanted,
)

LENGTH_TOKENS = 16


def pong(answer: ChatAnswer) -> Judged:
    return check(word_is(answer.content, prompts.SMOKE_WORD))


def smoke(session: Session, gate: Gate, n: int) -> Finding:
    return session.ask(gate, n, pong, messages=(prompts.user(prompts.SMOKE),), stream=True)[0]


def strict_object(session: Session, gate: Gate, n: int) -> Finding:
    case = prompts.json_case(f"{gate.id}/{n}")
    return session.ask(gate, n, lambda a: check(strict_json(a.content, case.expected)), messages=case.messages)[0]


def by_schema(session: Session, gate: Gate, n: int) -> Finding:
    """The engine holds the answer to a schema that the question does not name."""
    case = prompts.schema_case(f"{gate.id}/{n}")

    def judge(answer: ChatAnswer) -> Judged:
        return check(schema_json(answer.content, case.expected, case.enums))

    return session.ask(gate, n, judge, messages=case.messages, response_format=case.response_format)[0]


def stop(session: Session, gate: Gate, n: int) -> Finding:
    """Whole and streamed: a stream must hold back what may be the beginning of the stop sequence."""
    case, limit = prompts.stop_case(f"{gate.id}/{n}"), sum(budgets(gate, session.target.recipe))

    def judge(answer: ChatAnswer) -> Judged:
        return stopped_before(answer, limit, case.stop, case.before)

    return session.ask_both(gate, n, judge, partial=True, messages=case.messages, stop=(case.stop,))


def length(session: Session, gate: Gate, n: int) -> Finding:
    limit = gate.visible_tokens or LENGTH_TOKENS
    messages = (prompts.user(prompts.LONG_COUNT),)
    return session.ask_both(gate, n, lambda a: cut_at(a, limit), partial=True, messages=messages, max_tokens=limit)


def thinking(session: Session, gate: Gate, n: int) -> Finding:
    """Whole and streamed, for engines read reasoning by two parsers; each answer is judged by itself."""
    question, right = prompts.sum_case(f"{gate.id}/{n}")
    wanted = thinking_wanted(gate, session.target.recipe)

    def judge(answer: ChatAnswer) -> Judged:
        told = thought_as(wanted, answer)
        return told if told.outcome == "failed" or (why := word_is(answer.content, right)) is None else check(why)

    return session.ask_both(gate, n, judge, messages=(prompts.user(question),))


def no_thinking(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    if thinking_wanted(gate, target.recipe) == "none":
        return "neither the gate nor the recipe says thinking = on, off, low, medium or high"
    return ""


def liveness(session: Session, gate: Gate, n: int) -> Finding:
    """After all that came before: a plain request is answered, by the container that the suite began with."""
    answered = session.ask(gate, n, pong, messages=(prompts.user(prompts.SMOKE),))[0]
    stands = container_state(session, gate, n)
    decides = answered if not answered.judged.ok else stands
    return Finding(decides.judged, (*answered.observations, *stands.observations))


ANSWERING: Mapping[GateKind, GateWork] = {
    "smoke": GateWork(smoke),
    "json": GateWork(strict_object),
    "json-schema": GateWork(by_schema),
    "stop": GateWork(stop),
    "length": GateWork(length),
    "thinking": GateWork(thinking, no_thinking),
    "liveness": GateWork(liveness),
}
