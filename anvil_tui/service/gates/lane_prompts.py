"""Prompts of load lanes: words of a fixed list, the same in every run but for a salt at the head.

The words are short and common, so that nearly every vocabulary has each, with its space, as one token.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import dataclass

from anvil_tui.core.lane_rules import SHARED_SHARE, Prefix

GENERATOR = "words/1"
SALT_WORDS = 8
TAIL = "\n\nWrite a long plain story in which these words appear."

WORDS = tuple(
    re.findall(
        r"\w+",
        """
    able above action add after again age air also among animal answer appear apple area arm army art ask away
    baby back bad ball bank bar base bath beach bear beat bed been before begin behind bell best better big bird
    black blood blow blue board boat body bone book born both bottom box boy branch bread break bridge bright
    bring broken brown build burn busy buy cake call camp car card care carry case cat catch cause center chair
    chance change check child choose church circle city class clean clear climb clock close cloud coast coat cold
    color come common cook cool copy corn corner cost cotton count course cover cow create cross crowd cry cup cut
    dance danger dark day dead deal dear death deep degree desert design desk die dinner dirt doctor dog door
    double down draw dream dress drink drive drop dry dust each ear early earth east easy eat edge effect egg
    eight either end enemy energy engine enough enter equal even event ever every exact eye face fact fair fall
    family famous far farm fast fat father fear feed feel feet few field fight figure fill final find fine finger
    finish fire first fish fit five flat floor flow flower fly follow food foot force forest form four free fresh
    friend front fruit full fun game garden gas gave girl give glad glass goal gold good grass great green ground
    group grow guess gun hair half hall hand hard hat head hear heart heat heavy help hill hold hole horse
        """,
    )
)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of one row, `words` words each. `salt` is of this run and row; all else is always the same.

    `unique` and `warm`: each prompt begins with a salt of its own. `shared`: all begin alike, for `head` words.
    """

    prefix: Prefix
    words: int
    salt: str

    @property
    def head(self) -> int:
        """Words that all prompts have in common, its salt apart."""
        return int(self.words * SHARED_SHARE) if self.prefix == "shared" else 0

    def text(self, n: int) -> str:
        """Prompt `n`."""
        of = "head" if self.head else str(n)
        salt = " ".join(WORDS[byte] for byte in _digest(f"{self.salt}/{of}")[:SALT_WORDS])
        return f"{salt} {self._body(n)}"

    def _body(self, n: int) -> str:
        common = _words("head", self.head) if self.head else []
        return " ".join([*common, *_words(str(n), self.words - len(common))]) + TAIL

    def digest(self, requests: int) -> str:
        """`sha256:` of the generator and all texts without salts: equal where runs measured the same prompts."""
        facts = [GENERATOR, self.prefix, [self._body(n) for n in range(1, requests + 1)]]
        return "sha256:" + _digest(json.dumps(facts)).hex()


def _words(seed: str, count: int) -> list[str]:
    return random.Random(f"{GENERATOR}/{seed}").choices(WORDS, k=count)
