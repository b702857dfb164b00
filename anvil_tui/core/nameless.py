"""Persons, hosts and addresses out of a recording that is given away. Pure.

Each is the same stand-in everywhere in the file, so that two people or two machines can still be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from anvil_tui.core.world_codec import words_of_world

PERSON_KEYS = frozenset({"user", "acked_by", "by"})
HOST_KEYS = frozenset({"host"})
_NOBODY = frozenset({"root", "localhost"})
# With these a reference, an address or a digest begins.
_SCHEMES = frozenset({"unix", "ssh", "http", "https", "env", "file", "sha256"})
_HOME = re.compile(r"/(?:home|Users)/([\w.-]+)")
_SSH = re.compile(r"ssh://(?:([^\s@/]+)@)?([\w.-]+)")
_MAIL = re.compile(r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")


class Names:
    """Learns who and what is named in trees, and takes that out of any value. Not for several threads at once.

    In a text a word that also names a thing (a role, a field, an engine) stays: all of them would be `user-1`.
    """

    def __init__(self, persons: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self._into: dict[str, str] = {}
        self._count = {"user": 0, "host": 0}
        self._addresses: dict[str, str] = {}
        self._things: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for person in persons:
            self._add("user", person)
        for host in hosts:
            self._host(host)

    def learn(self, tree: Any, before: Any = None) -> None:
        """From every part of the tree that is not the same object in the one `before` it."""
        if tree is before:
            return
        if isinstance(tree, Mapping):
            old = before if isinstance(before, Mapping) else {}
            for key, value in tree.items():
                self._thing(str(key))
                if isinstance(value, str):
                    self._named(str(key), value)
                else:
                    self.learn(value, old.get(key))
        elif isinstance(tree, list):
            known = {id(item) for item in before} if isinstance(before, list) else ()
            for item in tree:
                if id(item) not in known:
                    self.learn(item)
        elif isinstance(tree, str):
            self._named("", tree)

    def out_of(self, value: Any, key: str = "") -> Any:
        """The value with stand-ins in every text of it. Under the name of a person or a host the text is one."""
        if isinstance(value, str):
            return self._whole(value) if key in PERSON_KEYS | HOST_KEYS else self._text(value)
        if isinstance(value, Mapping):
            return {k: self.out_of(v, str(k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self.out_of(v, key) for v in value]
        return value

    def _whole(self, text: str) -> str:
        """NAME, HOST or USER@HOST."""
        user, at, host = text.rpartition("@")
        parts = (self._into.get(user, user), at, self._into.get(host.partition(".")[0]) or self._text(host))
        return "".join(parts)

    def _named(self, key: str, text: str) -> None:
        if key in PERSON_KEYS:
            self._add("user", text)
        elif key in HOST_KEYS:
            user, _, host = text.rpartition("@")
            self._add("user", user)
            self._host(host)
        if "/home/" in text or "/Users/" in text:
            for person in _HOME.findall(text):
                self._add("user", person)
        if "ssh://" in text:
            for person, host in _SSH.findall(text):
                self._add("user", person)
                self._host(host)

    def _host(self, name: str) -> None:
        """Also by its first part: programs write either."""
        if not _is_address(name):
            self._add("host", name.partition(".")[0])

    def _thing(self, word: str) -> None:
        if word not in self._things:
            self._things.add(word)
            self._pattern = None

    def _add(self, kind: str, word: str) -> None:
        if word and word not in _NOBODY and word not in self._into:
            self._count[kind] += 1
            self._into[word] = f"{kind}-{self._count[kind]}"
            self._pattern = None

    def _text(self, text: str) -> str:
        if text in words_of_world():
            return text
        if "@" in text:
            text = _MAIL.sub("user@host", text)
        text = self._words().sub(lambda m: self._into[m[m.lastgroup or 0]], text)
        if text.count(".") > 2:
            text = _IPV4.sub(self._address, text)
        return _IPV6.sub(self._address, text) if text.count(":") > 1 else text

    def _words(self) -> re.Pattern[str]:
        if self._pattern is None:
            kept = self._things | words_of_world() | _SCHEMES
            words = sorted((w for w in self._into if w not in kept), key=len, reverse=True)
            meant = [w for w in words if len(w) > 1 and not w.isdigit()]
            hosts = "|".join(re.escape(w) for w in meant if self._into[w].startswith("host"))
            users = "|".join(re.escape(w) for w in meant if self._into[w].startswith("user"))
            made = [rf"(?P<host>{hosts})(?:\.[A-Za-z][\w-]*)*" * bool(hosts), rf"(?P<user>{users})" * bool(users)]
            self._pattern = re.compile(
                rf"(?<![\w-])(?:{'|'.join(filter(None, made))})(?![\w-])" if meant else "(?!)"
            )
        return self._pattern

    def _address(self, match: re.Match[str]) -> str:
        """Of ranges that nobody has: the reserved one of IPv4, the one of examples of IPv6."""
        text = match[0]
        if not _is_address(text) or ip_address(text).is_loopback or ip_address(text).is_unspecified:
            return text
        n = len(self._addresses) + 1
        made = IPv6Address((0x20010DB8 << 96) + n) if ":" in text else IPv4Address(0xF0000000 + n)
        return self._addresses.setdefault(text, str(made))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
