"""What the gateway runs on, as text: HAProxy's configuration, the hold script, the alias map and the list of keys.

Pure: the same workspace gives the same bytes. Every slot is one backend with one server at its fixed loopback
port; only the alias map and the list of keys move. Relative paths in the configuration are relative to its folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.workspace import GatewaySettings, Role

HOLD, NONE = "hold", "none"
CONFIG_FILE, LUA_FILE, MAP_FILE, KEYS_FILE = "haproxy.cfg", "hold.lua", "alias.map", "keys.list"
GENERATION_KEY = "__gen"
SERVER = "engine"

# Inactivity between two bytes, not length of a stream: an engine may think for an hour before its first byte.
SILENCE = "4h"
RETRY_S = 10

HOLD_LUA = """\
-- Rendered by anvil-tui. Keeps a request waiting while its alias says "hold".
local aliases = Map.new("alias.map", Map._str)
local beats, last = {}, 0

local function now()
  local t = core.now()
  return t.sec + t.usec / 1e6
end

core.register_action("hold", { "http-req" }, function(txn, limit_ms)
  local alias, target = txn:get_var("txn.alias"), nil
  local deadline = now() + tonumber(limit_ms) / 1000
  last = last + 1
  local me = last
  repeat
    beats[me] = now()
    core.msleep(25)
    target = aliases:lookup(alias)
  until target ~= "hold" or now() >= deadline
  beats[me] = nil
  txn:set_var("txn.target", target or "unknown")
end, 1)

-- A client that leaves ends the action in the middle of its sleep: without a beat for 2 s it no longer counts.
-- 2.6 notices it at once; 2.8 mostly at release when the body came in a packet of its own.
core.register_cli({ "show", "held" }, "show held : number of requests that wait for an alias", function(applet)
  local count, oldest = 0, now() - 2
  for id, beat in pairs(beats) do
    if beat < oldest then beats[id] = nil else count = count + 1 end
  end
  applet:send(count .. "\\n")
end)
"""


@dataclass(frozen=True, slots=True)
class AliasMap:
    """Where each alias points (a slot, `hold` or `none`) and the generation of the operation that set it."""

    targets: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0

    def entries(self) -> tuple[tuple[str, str], ...]:
        return (*sorted(self.targets.items()), (GENERATION_KEY, str(self.generation)))

    def text(self) -> str:
        """The durable form. The generation is the last line, so that a cut file is seen to be cut."""
        lines = "".join(f"{key} {value}\n" for key, value in self.entries())
        return f"# alias -> slot, hold or none. Written by anvil-tui; HAProxy loads it when it starts.\n{lines}"


def alias_map(entries: Iterable[tuple[str, str]]) -> AliasMap:
    """From key-value pairs, as the file or the running process holds them. ValueError when a pair is no sense."""
    targets = dict(entries)
    generation = targets.pop(GENERATION_KEY, "0")
    if not generation.isdigit():
        raise ValueError(f"generation {generation!r} is not a number")
    return AliasMap(targets, int(generation))


def parse_map(text: str) -> AliasMap:
    """The alias map of a file's text. ValueError says which line is damaged; a cut file is never a short map."""
    lines = [(n, line.split()) for n, line in enumerate(text.splitlines(), 1) if not line.startswith("#")]
    for number, words in lines:
        if len(words) != 2:
            raise ValueError(f"line {number} is not `ALIAS TARGET`")
    if not text.endswith("\n") or not lines or lines[-1][1][0] != GENERATION_KEY:
        raise ValueError(f"the file is cut: its last line is not `{GENERATION_KEY} N`")
    return alias_map((words[0], words[1]) for _, words in lines)


def merged(old: AliasMap, roles: Iterable[Role]) -> AliasMap:
    """The map for these roles: known aliases stay where they are, new ones point at `none`, others go."""
    wanted = {alias: old.targets.get(alias, NONE) for role in roles for alias in role.aliases}
    for alias, target in wanted.items():
        check_target(roles, alias, target)
    return AliasMap(wanted, old.generation)


def check_target(roles: Iterable[Role], alias: str, target: str) -> None:
    """Refused unless the alias is a role's and the target is `hold`, `none` or a slot of that role."""
    role = next((r for r in roles if alias in r.aliases), None)
    if role is None:
        known = ", ".join(a for r in roles for a in r.aliases)
        raise Refused(f"alias {alias} is in no role of anvil.toml; known: {known}")
    slots = [s.name for s in role.slots]
    if target not in (HOLD, NONE, *slots):
        raise Refused(
            f"alias {alias} cannot point at {target}: role {role.name} has {', '.join(slots)}, hold, none"
        )


def key_digest(key: str) -> str:
    """What the list of keys holds of a client's key."""
    return hashlib.sha256(key.encode()).hexdigest()


def keys_text(digests: Iterable[str]) -> str:
    """The durable list of keys. BadFile when it is empty: nobody could use the gateway."""
    wanted = sorted(set(digests))
    if not wanted:
        raise BadFile(
            "anvil.toml", "names no client key, so nobody could use the gateway", key="gateway.client_keys"
        )
    head = "# SHA-256 of each client key. Written by anvil-tui; HAProxy loads it when it starts.\n"
    return head + "".join(f"{digest}\n" for digest in wanted)


def keys_in(text: str) -> frozenset[str]:
    """The digests in a list of keys; a line that is none is no key."""
    return frozenset(re.findall(r"^[0-9a-f]{64}$", text, re.MULTILINE))


def render(settings: GatewaySettings, roles: tuple[Role, ...], cli_socket: str) -> tuple[str, str]:
    """The configuration and its digest, which the running process tells back as its description."""
    _check(roles)
    body = [*_defaults(), *_frontend(settings, roles)]
    for role in roles:
        for slot in role.slots:
            body += [f"backend {slot.name}", f"  server {SERVER} 127.0.0.1:{slot.port}"]
    rest = "\n".join([*_global(settings, cli_socket), *body, ""])
    digest = hashlib.sha256((rest + HOLD_LUA).encode()).hexdigest()[:16]
    head = "# Rendered by anvil-tui from anvil.toml; `anvil-tui gateway install` writes it anew."
    return f"{head}\nglobal\n  description {digest}\n{rest}", digest


def _check(roles: tuple[Role, ...]) -> None:
    for role in roles:
        if taken := [s.name for s in role.slots if s.name in (HOLD, NONE)]:
            raise BadFile(
                "anvil.toml", f"{taken[0]} is a reserved word, name the slot otherwise", key="roles.slots"
            )
        if GENERATION_KEY in role.aliases:
            raise BadFile("anvil.toml", f"{GENERATION_KEY} is a reserved word", key="roles.aliases")


def _global(settings: GatewaySettings, cli_socket: str) -> list[str]:
    # 64 KiB above the body: request line, headers and HAProxy's own bookkeeping share the buffer.
    # nbthread 1: from the look into the alias map to the count of its backend a request is one uninterrupted act,
    # so "on hold and zero in flight" is exact.
    # noreuseport: a second gateway must fail to start, not share the port and answer from a map of its own.
    return [
        "  default-path config",
        f"  stats socket {cli_socket} mode 600 level admin",
        "  stats timeout 10s",
        "  maxconn 1024",
        "  nbthread 1",
        "  no strict-limits",
        "  noreuseport",
        f"  tune.bufsize {settings.max_body_kib * 1024 + 65536}",
        f"  tune.lua.session-timeout {max(60, settings.hold_max_s)}s",
        f"  lua-load {LUA_FILE}",
        f"  hard-stop-after {SILENCE}",
    ]


def _defaults() -> list[str]:
    """A new connection to the engine for each request: a stale one cannot fail it, and counts are exact."""
    down = "engine in slot %[var(txn.target),json(utf8s)] does not answer; try again"
    return [
        "defaults",
        "  mode http",
        "  timeout connect 5s",
        "  timeout queue 5m",
        "  timeout http-request 60s",
        "  timeout http-keep-alive 10m",
        *(f"  timeout {what} {SILENCE}" for what in ("client", "server", "tunnel")),
        "  retries 0",
        "  option http-server-close",
        "  option abortonclose",
        "  option http-no-delay",
        "  option clitcpka",
        "  http-reuse never",
        _own_error(400, "invalid_request_error", "bad_request", "not a valid HTTP request"),
        _own_error(408, "invalid_request_error", "request_timeout", "the request did not arrive within 60 s"),
        _own_error(500, "server_error", "gateway_error", "the gateway failed on this request"),
        _own_error(502, "server_error", "engine_broken", "the engine broke off or did not speak HTTP"),
        _own_error(503, "service_unavailable", "engine_down", down) + f" hdr retry-after {RETRY_S}",
        _own_error(504, "server_error", "engine_silent", f"no byte from the engine for {SILENCE}"),
    ]


def _frontend(settings: GatewaySettings, roles: tuple[Role, ...]) -> list[str]:
    """Authenticate, find the alias, look it up, hold if it says so, dispatch. The order is the point: a stranger's
    body is not kept, a client's is read before any answer, since one sent into the middle of it may get lost.
    """
    slots = [s.name for r in roles for s in r.slots]
    missing = "!{ var(txn.alias) -m found }"
    target = "var(txn.target) -m str"
    return [
        "frontend anvil:clients",
        f"  bind {settings.bind}",
        f"  acl known_key var(txn.key) -m str -f {KEYS_FILE}",
        *(f"  acl is_slot {target} {slot}" for slot in slots),
        "  http-request set-var(txn.key) http_auth_bearer,sha2(256),hex,lower",
        f"  {_unauthorized()} unless known_key",
        "  http-request wait-for-body time 60s",
        "  http-request set-var(txn.alias) req.fhdr(x-model-alias) if { req.fhdr(x-model-alias) -m found }",
        f"  http-request set-var(txn.alias) path,field(2,/),url_dec if {missing} {{ path_reg ^/[^/]+/v1/ }}",
        r"  http-request replace-path ^/[^/]+/v1/(.*) /v1/\1",
        f"  {_model_list(roles)} if {missing} {{ method GET }} {{ path /v1/models }}",
        f"  {_wrong_path()} unless {{ path_beg /v1/ }}",
        f"  http-request set-var(txn.alias) req.body,json_query('$.model') if {missing}",
        f"  {_no_model(settings)} if {missing}",
        f"  http-request set-var(txn.target) var(txn.alias),map_str({MAP_FILE},unknown)",
        *(f"  http-request set-var(txn.target) str({s}) if {{ var(txn.alias) -m str @{s} }}" for s in slots),
        f"  http-request lua.hold {settings.hold_max_s * 1000} if {{ {target} {HOLD} }}",
        f"  {_held_too_long(settings)} if {{ {target} {HOLD} }}",
        f"  {_nothing_serves()} if {{ {target} {NONE} }}",
        f"  {_unknown_model(roles)} unless is_slot",
        "  http-request del-header authorization",
        "  http-request del-header x-model-alias",
        "  http-response set-header x-anvil-backend %b",
        "  use_backend %[var(txn.target)]",
    ]


_ALIAS = "%[var(txn.alias),bytes(0,120),json(utf8s)]"


def _error(kind: str, code: str, message: str) -> str:
    """An OpenAI-shaped body. `%[...]` in the message is HAProxy's, and its own escaping keeps it JSON."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _own_error(status: int, kind: str, code: str, message: str) -> str:
    return f"  http-error status {status} content-type application/json lf-string '{_error(kind, code, message)}'"


def _return(status: int, body: str, *headers: str) -> str:
    extra = "".join(f" hdr {h}" for h in headers)
    return f"http-request return status {status} content-type application/json{extra} lf-string '{body}'"


def _unauthorized() -> str:
    message = "the gateway does not know this bearer token"
    return _return(401, _error("invalid_request_error", "invalid_api_key", message), "www-authenticate Bearer")


def _wrong_path() -> str:
    message = "only paths under /v1/ and /ALIAS/v1/ are served here"
    return _return(404, _error("invalid_request_error", "not_found", message))


def _no_model(settings: GatewaySettings) -> str:
    message = (
        f"no model found in the first {settings.max_body_kib} KiB of a JSON body; "
        "name it in the header x-model-alias or in the path /ALIAS/v1/..."
    )
    return _return(400, _error("invalid_request_error", "model_missing", message))


def _held_too_long(settings: GatewaySettings) -> str:
    message = f"{_ALIAS} is changing engines and was not back within {settings.hold_max_s} s; try again"
    return _return(503, _error("service_unavailable", "model_on_hold", message), f"retry-after {RETRY_S}")


def _nothing_serves() -> str:
    message = f"nothing serves {_ALIAS}: no engine was promoted to it"
    return _return(503, _error("service_unavailable", "nothing_serves", message), f"retry-after {RETRY_S}")


def _unknown_model(roles: tuple[Role, ...]) -> str:
    known = ", ".join(a for r in roles for a in r.aliases)
    message = f"no model {_ALIAS} here; known: {known}"
    return _return(404, _error("invalid_request_error", "model_not_found", message))


def _model_list(roles: tuple[Role, ...]) -> str:
    models = [{"id": a, "object": "model", "owned_by": "anvil"} for r in roles for a in r.aliases]
    return _return(200, json.dumps({"object": "list", "data": models}))
