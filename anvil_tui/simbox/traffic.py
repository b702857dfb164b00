"""A light client: now and then one request through the gateway, so that the console has something to show."""

from __future__ import annotations

import asyncio
import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from anvil_tui.simbox.workspace import ALIASES, KEY_FILE

if TYPE_CHECKING:
    from anvil_tui.simbox.box import SimBox

PAUSE_S = (2.0, 6.0)
ASKS = (
    "Reply with exactly the single word: pong",
    "What is 17 + 25?",
    'Return only this JSON object: {"status": "fine", "count": 3}',
)
NOTE = "The harbour log of day {n} names {n} boats and a calm sea."


async def run(box: SimBox, directory: Path) -> None:
    """Until cancelled. Outcomes are counted by status in `box.traffic`."""
    bind = tomllib.loads((directory / "anvil.toml").read_text(encoding="utf-8"))["gateway"]["bind"]
    rng = random.Random(0)
    async with httpx.AsyncClient(base_url=f"http://{bind}", timeout=900) as http:
        while True:
            await asyncio.sleep(rng.uniform(*PAUSE_S))
            outcome = await one(http, directory / KEY_FILE, rng)
            box.traffic[outcome] = box.traffic.get(outcome, 0) + 1


async def one(http: httpx.AsyncClient, key_file: Path, rng: random.Random) -> str:
    """One streamed request: `ok`, `truncated`, the HTTP status, `refused`, or `no key`. The key is read each time,
    for a rotation changes it."""
    try:
        key = key_file.read_text(encoding="utf-8").strip()
    except OSError:
        return "no key"
    notes = " ".join(NOTE.format(n=n) for n in range(rng.choice((3, 40, 2000))))
    body = {
        "model": rng.choice(ALIASES),
        "stream": True,
        "max_tokens": 400,
        "messages": [{"role": "user", "content": f"{notes}\n{rng.choice(ASKS)}"}],
    }
    try:
        auth = {"Authorization": f"Bearer {key}"}
        async with http.stream("POST", "/v1/chat/completions", json=body, headers=auth) as reply:
            text = (await reply.aread()).decode(errors="replace")
    except httpx.TransportError:
        return "refused"
    if reply.status_code != 200:
        return str(reply.status_code)
    return "ok" if "[DONE]" in text else "truncated"
