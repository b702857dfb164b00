"""A box that is like another one: its cards, its containers by their ids, what of them runs, and its record.

The sheet is a JSON file that says what was there; the workspace around it (anvil.toml, recipes, gates) lies in the
folder already. Engines are simulated: they load in simulated time and read no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import BoxRecord, ServeRecord
from anvil_tui.simbox.box import SimBox
from anvil_tui.simbox.daemon import Image
from anvil_tui.simbox.gpus import Card
from anvil_tui.simbox.run import ready
from anvil_tui.simbox.workspace import create_body, save_record, shape


@dataclass(frozen=True, slots=True)
class CardSheet:
    """One GPU as it was read. `total_mib` None = not known; `lost` says why it cannot be used, "" = it can."""

    uuid: str
    name: str | None
    total_mib: int | None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class ServeSheet:
    """One recorded container that exists: its name, whether it runs, and the GPUs, by UUID, that it was given."""

    container_id: str
    name: str
    running: bool
    exit_code: int | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """`record` has the ports of the copy; `aliases` are those of each role; `images` are the references here."""

    cards: tuple[CardSheet, ...]
    serves: tuple[ServeSheet, ...]
    record: BoxRecord
    aliases: Mapping[str, tuple[str, ...]]
    images: tuple[str, ...]


SHEET = TypeAdapter(Sheet)


async def furnish(box: SimBox, directory: Path, sheet_file: Path) -> None:
    """The cards, images and containers of the sheet; what ran there runs and is ready here."""
    sheet = SHEET.validate_json(sheet_file.read_bytes())
    box.board.cards = [_card(n, c) for n, c in enumerate(sheet.cards)]
    recipes = {d: _recipe(directory, d) for d in {s.recipe_digest for s in sheet.record.serves.values()}}
    for recipe in recipes.values():
        image = Image(recipe.image.ref, recipe.launch.entrypoint)
        box.daemon.catalogue[image.ref] = image
        if image.ref in sheet.images:
            box.daemon.images[image.ref] = image
    await box.open()
    records = dict(sheet.record.serves)
    for seen in sheet.serves:
        record = records[seen.container_id]
        records[seen.container_id] = await _container(box, recipes[record.recipe_digest], record, seen, sheet)
    save_record(directory, replace(sheet.record, serves=records))


def _card(index: int, sheet: CardSheet) -> Card:
    card = Card(index, sheet.uuid, lost=sheet.lost)
    card.name = sheet.name or card.name
    card.total_mib = sheet.total_mib or card.total_mib
    return card


def _recipe(directory: Path, digest: str) -> Recipe:
    return Recipe.model_validate_json((directory / "state" / "recipes" / f"{digest}.json").read_bytes())


async def _container(
    box: SimBox, recipe: Recipe, record: ServeRecord, seen: ServeSheet, sheet: Sheet
) -> ServeRecord:
    uuids = dict(zip(recipe.gpus.select, seen.gpus, strict=False))
    body: dict[str, Any] = create_body(recipe, record.port, uuids, sheet.aliases[record.role], record.made_by)
    image = box.daemon.catalogue[recipe.image.ref]
    box.daemon.images.setdefault(image.ref, image)
    made = box.daemon.create(seen.name, body, seen.container_id)
    if image.ref not in sheet.images:
        del box.daemon.images[image.ref]
    if seen.running:
        await ready(box, made)
    elif seen.exit_code is not None:
        made.status, made.exit_code = "exited", seen.exit_code
        made.started_ns = made.finished_ns = made.created_ns
    return replace(record, image_id=image.id, shape=shape(made))


def dump(sheet: Sheet) -> str:
    return json.dumps(SHEET.dump_python(sheet, mode="json"))
