"""Gates of long prompts: each function makes repeat `n` of its gate. Lengths are the engine's own counts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anvil_tui.core.chat import FORCED_LENGTH, ChatAnswer
from anvil_tui.core.gates import Gate, GateKind, Suite
from anvil_tui.core.protocol import client_shape, refused_overlong
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.verdicts import Judged, check, exactly, word_is
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.answering import pong
from anvil_tui.service.gates.calibrate import at_length, calibrate, room_for, units_for
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session

Asked = tuple[Finding, ChatAnswer]

OVER_CONTEXT = 1.1
CLIENT_TOKENS = 5000


def needle(session: Session, gate: Gate, n: int) -> Finding:
    """The code is found in a prompt whose length the engine itself counted."""
    hay = prompts.Haystack(f"{session.salt}-{gate.id}-{n}", gate.positions_pct[(n - 1) % len(gate.positions_pct)])
    scale = calibrate(session, gate, hay.prompt, kind="needle", tokens=gate.prompt_tokens_at_least)

    def look(sentences: int) -> Asked:
        messages = (prompts.user(hay.prompt(sentences)),)
        return session.ask(gate, n, lambda a: check(exactly(a.content, hay.code)), messages=messages, stream=True)

    return at_length(session, gate, scale, room_for(session, gate), look)


def needle_absent(session: Session, gate: Gate, n: int) -> Finding:
    """The control: without the wanted code the agreed word must come, and no code."""
    hay = prompts.Haystack(f"{session.salt}-{gate.id}-{n}", 50)
    scale = calibrate(session, gate, hay.prompt_without, kind="needle", tokens=gate.prompt_tokens_at_least)

    def judge(answer: ChatAnswer) -> Judged:
        why = word_is(answer.content, prompts.ABSENT)
        named = next((code for code in re.findall(prompts.CODE, answer.content)), "")
        if why and named:
            why += f"; {named} stands {'with another place' if named in hay.others else 'nowhere in the prompt'}"
        return check(why)

    def look(sentences: int) -> Asked:
        return session.ask(gate, n, judge, messages=(prompts.user(hay.prompt_without(sentences)),), stream=True)

    return at_length(session, gate, scale, room_for(session, gate), look)


def overlong(session: Session, gate: Gate, n: int) -> Finding:
    """A prompt above the context is refused by an error that tells so, and the engine answers after it."""
    context = session.target.recipe.envelope.context_tokens
    hay = prompts.Haystack(f"{session.salt}-{gate.id}-{n}", 50)
    scale = calibrate(session, gate, hay.prompt, kind="needle", tokens=context // 10)
    if scale.scale is None:
        return Finding(scale.judged, scale.observations)
    tokens = int(context * OVER_CONTEXT)
    text = hay.prompt(units_for(scale.scale, tokens))
    refused, _ = session.ask(
        gate, n, lambda a: refused_overlong(a, context, tokens), partial=True, messages=(prompts.user(text),)
    )
    kept = (*scale.observations, *refused.observations)
    if not refused.judged.ok:
        return Finding(refused.judged, kept)
    alive, _ = session.ask(gate, n, pong, messages=(prompts.user(prompts.SMOKE),))
    judged = refused.judged if alive.judged.ok else alive.judged
    return Finding(judged, (*kept, *alive.observations))


def client_tokens(gate: Gate, recipe: Recipe) -> int:
    """How long the client-shaped answer is: the gate's own figure, else 5,000, or what the recipe allows."""
    return gate.completion_tokens or min(CLIENT_TOKENS, recipe.envelope.max_output_tokens or CLIENT_TOKENS)


def client(session: Session, gate: Gate, n: int) -> Finding:
    """A long prompt and a long streamed answer, as a coding client makes them; both lengths are measured."""
    recipe, seed = session.target.recipe, f"{session.salt}-{gate.id}-{n}"
    made = client_tokens(gate, recipe)
    extra = {} if recipe.engine is EngineKind.OPENAI else FORCED_LENGTH

    def text(sentences: int) -> str:
        return f"Notes {seed}.\n\n{' '.join(prompts.notes(seed, sentences))}\n\n{prompts.COUNT_ON}"

    def ask(sentences: int) -> Asked:
        return session.ask(
            gate, n, lambda a: client_shape(a, made, bool(extra)), partial=True,
            messages=(prompts.user(text(sentences)),), max_tokens=made, stream=True, extra=extra,
        )  # fmt: skip

    scale = calibrate(session, gate, text, kind="client", tokens=gate.prompt_tokens_at_least)
    return at_length(session, gate, scale, recipe.envelope.context_tokens - made, ask)


def _no_room(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    made, envelope = client_tokens(gate, target.recipe), target.recipe.envelope
    if envelope.max_output_tokens and made > envelope.max_output_tokens:
        return f"completion_tokens is {made:,}, the recipe's max_output_tokens {envelope.max_output_tokens:,}"
    need = gate.prompt_tokens_at_least + made
    if need > envelope.context_tokens:
        return f"prompt floor and answer need {need:,} tokens, the recipe's context is {envelope.context_tokens:,}"
    return ""


READING: Mapping[GateKind, GateWork] = {
    "needle": GateWork(needle),
    "needle-absent": GateWork(needle_absent),
    "overlong": GateWork(overlong),
    "client-shape": GateWork(client, _no_room),
}
