"""The simulated cards: memory by holder, late release, load, and the snapshot lines a reader program prints."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anvil_tui.core.box import MIB, Gpu, GpuProcess, GpuSnapshot
from anvil_tui.core.gpu_wire import GpuFault, snapshot_to_json
from anvil_tui.simbox.pace import Pace

NAME = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
DRIVER, CUDA = "580.95.05", "13.0"
TOTAL_MIB = 97_887
RESERVED_MIB = 638
IDLE_MIB = 4
USABLE_MIB = TOTAL_MIB - RESERVED_MIB
POWER_LIMIT_W = 300.0
RELEASE_S = 4.0  # the driver gives memory back over some seconds after the process ended
WARM_S = 20.0  # time constant of temperature


@dataclass(slots=True)
class Holding:
    """What one container holds on one card. `ends_at` is set when its process is gone."""

    holder: str
    pid: int
    name: str
    mib: float = 0.0
    load: float = 0.0
    ended_at: float | None = None
    stuck: bool = False


@dataclass(slots=True)
class Card:
    index: int
    uuid: str
    holdings: list[Holding] = field(default_factory=list)
    lost: str = ""
    heat: float = 31.0
    read_at: float = 0.0
    name: str = NAME
    total_mib: int = TOTAL_MIB

    @property
    def usable_mib(self) -> int:
        return self.total_mib - RESERVED_MIB


class Board:
    """All cards of the box. Every quantity is a function of who holds what and of the simulated time."""

    def __init__(self, pace: Pace, seed: int, count: int = 2) -> None:
        rng = random.Random(f"{seed}-gpus")
        self._pace, self._noise = pace, random.Random(f"{seed}-noise")
        self.cards = [Card(i, f"GPU-{_uuid(rng)}") for i in range(count)]
        self.fault: GpuFault | None = None
        self.silent = False
        self.keep_memory = False

    def card(self, name: str) -> Card | None:
        """By UUID, by a prefix of one UUID alone, or index text."""
        exact = [c for c in self.cards if name in (c.uuid, str(c.index))]
        short = [c for c in self.cards if name.startswith("GPU-") and c.uuid.startswith(name)]
        return exact[0] if exact else short[0] if len(short) == 1 else None

    def select(self, requests: Sequence[Any]) -> list[Card] | str:
        """The cards that Docker device requests mean, by id or by CDI name, or the id that no card has."""
        chosen: list[Card] = []
        for request in requests:
            ids = [str(name).removeprefix("nvidia.com/gpu=") for name in request.get("DeviceIDs") or []]
            count = request.get("Count") or 0
            if not ids or ids == ["all"]:
                chosen += self.cards if count < 0 or ids else self.cards[:count]
                continue
            for name in ids:
                card = self.card(name)
                if card is None or card.lost:
                    return name
                chosen.append(card)
        return chosen

    def claim(self, holder: str, pid: int, name: str, cards: Sequence[Card]) -> None:
        for card in cards:
            card.holdings.append(Holding(holder, pid, name))

    def hold(self, holder: str, mib: float) -> None:
        """Memory of one holder, per card, from now on."""
        for holding in self._of(holder):
            holding.mib = mib

    def work(self, holder: str, load: float) -> None:
        """How busy one holder keeps its cards, 0..1."""
        for card in self.cards:
            self._warm(card)
        for holding in self._of(holder):
            holding.load = load

    def end(self, holder: str) -> None:
        """The holder's process is gone; its memory follows later, or not at all while `keep_memory`."""
        for holding in self._of(holder):
            holding.load, holding.ended_at, holding.stuck = 0.0, self._pace.now(), self.keep_memory

    def drop(self, holder: str) -> None:
        """A holder is gone, with its memory, at once."""
        for card in self.cards:
            card.holdings = [h for h in card.holdings if h.holder != holder]

    def drop_stuck(self) -> None:
        """What an orphan held is given back from now on."""
        for card in self.cards:
            for holding in card.holdings:
                if holding.stuck:
                    holding.stuck, holding.ended_at = False, self._pace.now()

    def free_mib(self, card: Card) -> float:
        self._forget(card)
        return card.usable_mib - IDLE_MIB - sum(self._now_mib(h) for h in card.holdings)

    def held_mib(self, card: Card, holder: str) -> float:
        """What a holder that lives has on a card."""
        return sum(h.mib for h in card.holdings if h.holder == holder and h.ended_at is None)

    def line(self) -> dict[str, Any]:
        """One line of the reader's wire form."""
        if self.fault is not None:
            return snapshot_to_json(self.fault)
        return snapshot_to_json(GpuSnapshot(DRIVER, tuple(self._row(c) for c in self.cards), CUDA))

    def _of(self, holder: str) -> list[Holding]:
        return [h for c in self.cards for h in c.holdings if h.holder == holder and h.ended_at is None]

    def _now_mib(self, holding: Holding) -> float:
        if holding.ended_at is None or holding.stuck:
            return holding.mib
        return holding.mib * max(0.0, 1 - (self._pace.now() - holding.ended_at) / RELEASE_S)

    def _forget(self, card: Card) -> None:
        card.holdings = [h for h in card.holdings if h.ended_at is None or self._now_mib(h) > 0]

    def _warm(self, card: Card) -> None:
        """Temperature follows load with a lag."""
        now = self._pace.now()
        aim = 31.0 + 42.0 * self._load(card)
        share = 1 - 2.718281828 ** (-(now - card.read_at) / WARM_S)
        card.heat, card.read_at = card.heat + (aim - card.heat) * share, now

    def _load(self, card: Card) -> float:
        return min(1.0, sum(h.load for h in card.holdings if h.ended_at is None))

    def _row(self, card: Card) -> Gpu:
        gpu = Gpu(card.index, card.uuid, card.name, bus_id=f"00000000:{0x21 + 0x20 * card.index:02X}:00.0")
        if card.lost:
            return replace(gpu, state="lost", reason=card.lost)
        free = self.free_mib(card)
        self._warm(card)
        load = self._load(card)
        wobble = self._noise.uniform(-1, 1)
        return replace(
            gpu,
            total_bytes=card.total_mib * MIB,
            reserved_bytes=RESERVED_MIB * MIB,
            free_bytes=round(free) * MIB,
            used_bytes=(card.usable_mib - round(free)) * MIB,
            utilization_pct=max(0, min(100, round(100 * load + (3 * wobble if load else 0)))),
            temperature_c=round(card.heat),
            power_w=round(16 + 268 * load + (6 if load else 1) * wobble, 1),
            power_limit_w=POWER_LIMIT_W,
            sm_clock_mhz=2280 if load else 180,
            memory_clock_mhz=12481 if load else 405,
            throttle=("sw-power-cap",) if load > 0.9 else (() if load else ("idle",)),
            ecc_uncorrected=0,
            pcie_tx_kib_s=round(900_000 * load),
            pcie_rx_kib_s=round(1_100_000 * load),
            fan_pct=round(30 + 45 * load),
            processes=tuple(
                GpuProcess(h.pid, h.name, round(self._now_mib(h)) * MIB)
                for h in card.holdings
                if h.mib and (h.ended_at is None or h.stuck)
            ),
        )


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
