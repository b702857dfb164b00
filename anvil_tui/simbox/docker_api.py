"""The Docker Engine API over HTTP: routes, bodies and status codes onto `daemon.Daemon`."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from anvil_tui.simbox import docker_bodies as bodies
from anvil_tui.simbox.daemon import API, MIN_API, Daemon, DockerError, Image
from anvil_tui.simbox.http import Cut, Reply, Request, json_reply, text_reply
from anvil_tui.simbox.logbook import LogQuery

Found = tuple[str, ...]
RAW, MULTIPLEXED = "application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream"
LAYERS = 3


class DockerApi:
    """`down` breaks every connection, as a daemon that restarts."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.down = False

    async def handle(self, request: Request) -> Reply:
        if self.down:
            raise Cut("fault: the daemon is down")
        path, refusal = _unversioned(request.path)
        if refusal is not None:
            return refusal
        for method, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and request.method == method:
                try:
                    return await act(self._daemon, request, found.groups())
                except DockerError as why:
                    return _message(why.status, why.message)
                except ValueError as why:
                    return _message(400, f"invalid request: {why}")
        return _message(404, "page not found")


def _unversioned(path: str) -> tuple[str, Reply | None]:
    found = re.match(r"/v(\d+)\.(\d+)(/.*)", path)
    if not found:
        return path, None
    asked, text = (int(found[1]), int(found[2])), f"{found[1]}.{found[2]}"
    if asked > _number(API):
        return path, _message(400, f"client version {text} is too new. Maximum supported API version is {API}")
    if asked < _number(MIN_API):
        return path, _message(
            400,
            f"client version {text} is too old. Minimum supported API version is {MIN_API}, "
            "please upgrade your client to a newer version",
        )
    return found[3], None


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _message(status: int, text: str) -> Reply:
    return json_reply(status, {"message": text})


# system


async def _ping(daemon: Daemon, request: Request, found: Found) -> Reply:
    reply = text_reply(200, "OK")
    return Reply(
        200, reply.body, reply.kind, {"Api-Version": API, "Ostype": "linux", "Docker-Experimental": "false"}
    )


async def _version(daemon: Daemon, request: Request, found: Found) -> Reply:
    return json_reply(200, bodies.version())


async def _info(daemon: Daemon, request: Request, found: Found) -> Reply:
    return json_reply(200, bodies.info(daemon))


async def _events(daemon: Daemon, request: Request, found: Found) -> Reply:
    filters = _filters(request)

    async def lines() -> AsyncGenerator[bytes, None]:
        async for event in daemon.events(_ns(request, "since"), _ns(request, "until")):
            if bodies.event_wanted(event, filters):
                yield json.dumps(event).encode() + b"\n"

    return Reply(200, stream=lines())


# containers


async def _list(daemon: Daemon, request: Request, found: Found) -> Reply:
    filters, everything = _filters(request), request.flag("all")
    newest = sorted(daemon.containers.values(), key=lambda c: c.created_ns, reverse=True)
    shown = [c for c in newest if (everything or c.running or "status" in filters) and bodies.wanted(c, filters)]
    limit = int(request.query.get("limit") or -1)
    return json_reply(200, [bodies.summary(c) for c in (shown[:limit] if limit > 0 else shown)])


async def _inspect(daemon: Daemon, request: Request, found: Found) -> Reply:
    return json_reply(200, bodies.inspect(daemon.find(found[0])))


async def _create(daemon: Daemon, request: Request, found: Found) -> Reply:
    made = daemon.create(request.query.get("name", ""), request.json() or {})
    return json_reply(201, {"Id": made.id, "Warnings": []})


async def _start(daemon: Daemon, request: Request, found: Found) -> Reply:
    return Reply(204 if daemon.start(daemon.find(found[0])) else 304)


async def _stop(daemon: Daemon, request: Request, found: Found) -> Reply:
    grace = request.query.get("t")
    stopped = await daemon.stop(daemon.find(found[0]), float(grace) if grace not in (None, "") else None)
    return Reply(204 if stopped else 304)


async def _restart(daemon: Daemon, request: Request, found: Found) -> Reply:
    container, grace = daemon.find(found[0]), request.query.get("t")
    await daemon.stop(container, float(grace) if grace else None)
    daemon.start(container)
    return Reply(204)


async def _kill(daemon: Daemon, request: Request, found: Found) -> Reply:
    container = daemon.find(found[0])
    signal = request.query.get("signal", "SIGKILL")
    daemon.kill(container, signal)
    if signal in ("SIGKILL", "KILL", "9"):
        await container.ended.wait()
    return Reply(204)


async def _rename(daemon: Daemon, request: Request, found: Found) -> Reply:
    daemon.rename(daemon.find(found[0]), request.query.get("name", ""))
    return Reply(204)


async def _remove(daemon: Daemon, request: Request, found: Found) -> Reply:
    await daemon.remove(daemon.find(found[0]), request.flag("force"))
    return Reply(204)


async def _wait(daemon: Daemon, request: Request, found: Found) -> Reply:
    container = daemon.find(found[0])
    next_exit = request.query.get("condition") == "next-exit"
    if next_exit and not container.running:
        container.ended.clear()
    if container.running or next_exit:
        await container.ended.wait()
    return json_reply(200, {"StatusCode": container.exit_code})


async def _logs(daemon: Daemon, request: Request, found: Found) -> Reply:
    container = daemon.find(found[0])
    driver = (container.host.get("LogConfig") or {}).get("Type") or "json-file"
    if driver == "none":
        return _message(501, "configured logging driver does not support reading")
    tail = request.query.get("tail", "all")
    query = LogQuery(
        request.flag("stdout"),
        request.flag("stderr"),
        request.flag("timestamps"),
        _ns(request, "since"),
        _ns(request, "until"),
        int(tail) if tail.isdigit() else None,
    )
    if not (query.stdout or query.stderr):
        return _message(400, "Bad parameters: you must choose at least one stream")
    kind = RAW if container.logs.tty else MULTIPLEXED
    if request.flag("follow"):
        return Reply(200, kind=kind, stream=container.logs.follow(query))
    frames = [f for e in container.logs.read(query) for f in container.logs.frames(e, query)]
    return Reply(200, b"".join(frames), kind)


async def _top(daemon: Daemon, request: Request, found: Found) -> Reply:
    container = daemon.find(found[0])
    if not container.running:
        raise DockerError(409, f"container {container.id} is not running")
    return json_reply(
        200,
        {
            "Titles": ["UID", "PID", "PPID", "C", "STIME", "TTY", "TIME", "CMD"],
            "Processes": [
                ["root", str(container.pid), "1", "0", "00:00", "?", "00:00:01", " ".join(container.words)]
            ],
        },
    )


# images


async def _images(daemon: Daemon, request: Request, found: Found) -> Reply:
    return json_reply(200, [bodies.image_summary(i) for i in daemon.images.values()])


async def _disk_usage(daemon: Daemon, request: Request, found: Found) -> Reply:
    """Layers are nobody's but their image's here."""
    images = [bodies.image_summary(i) for i in daemon.images.values()]
    return json_reply(200, {"LayersSize": sum(i.size for i in daemon.images.values()), "Images": images})


async def _image(daemon: Daemon, request: Request, found: Found) -> Reply:
    return json_reply(200, bodies.image(daemon.image(found[0])))


async def _remove_image(daemon: Daemon, request: Request, found: Found) -> Reply:
    image = daemon.image(found[0])
    user = next((c for c in daemon.containers.values() if c.image is image), None)
    if user is not None:
        raise DockerError(
            409,
            f"conflict: unable to delete {image.id[7:19]} (must be forced) - container "
            f"{user.id[:12]} is using its referenced image {image.id[7:19]}",
        )
    del daemon.images[image.ref]
    return json_reply(200, [{"Untagged": image.ref}, {"Deleted": image.id}])


async def _pull(daemon: Daemon, request: Request, found: Found) -> Reply:
    repo, tag = request.query.get("fromImage", ""), request.query.get("tag", "")
    ref = (
        f"{repo}@{tag}" if tag.startswith("sha256:") else f"{repo}:{tag or 'latest'}" if "@" not in repo else repo
    )
    image = daemon.catalogue.get(ref)
    if image is None or "pull_fails" in daemon.pending:
        text = daemon.pending.pop("pull_fails", {}).get(
            "text", f"manifest for {ref} not found: manifest unknown: manifest unknown"
        )
        raise DockerError(404, text)
    return Reply(200, stream=_pulling(daemon, image))


async def _pulling(daemon: Daemon, image: Image) -> AsyncGenerator[bytes, None]:
    def line(**fields: Any) -> bytes:
        return json.dumps(fields).encode() + b"\r\n"

    layers = [image.id[7 + 12 * n : 19 + 12 * n] for n in range(LAYERS)]
    yield line(status=f"Pulling from {image.repo.partition('/')[2] or image.repo}", id=image.id)
    if image.ref in daemon.images:
        yield line(status=f"Digest: {image.id}")
        yield line(status=f"Status: Image is up to date for {image.ref}")
        return
    for layer in layers:
        yield line(status="Pulling fs layer", progressDetail={}, id=layer)
    total = image.size // LAYERS
    for layer in layers:
        for part in range(1, 6):
            await daemon.pace.sleep(2)
            now = total * part // 5
            yield line(
                status="Downloading",
                progressDetail={"current": now, "total": total},
                id=layer,
                progress=f"[{'=' * part * 10}>] {now / 1e6:.1f}MB/{total / 1e6:.1f}MB",
            )
        yield line(status="Pull complete", progressDetail={}, id=layer)
    daemon.images[image.ref] = image
    yield line(status=f"Digest: {image.id}")
    yield line(status=f"Status: Downloaded newer image for {image.ref}")


# reading the query


def _filters(request: Request) -> Mapping[str, list[str]]:
    raw = json.loads(request.query.get("filters") or "{}")
    return {
        k: [n for n, on in v.items() if on] if isinstance(v, dict) else [str(x) for x in v] for k, v in raw.items()
    }


def _ns(request: Request, name: str) -> int:
    text = request.query.get(name, "")
    if not text or text == "0":
        return 0
    whole, _, rest = text.partition(".")
    return int(whole) * 1_000_000_000 + int(rest[:9].ljust(9, "0"))


Act = Callable[[Daemon, Request, Found], Awaitable[Reply]]
_C = r"/containers/([^/]+)"
_ROUTES: tuple[tuple[str, str, Act], ...] = (
    ("GET", "/_ping", _ping),
    ("HEAD", "/_ping", _ping),
    ("GET", "/version", _version),
    ("GET", "/info", _info),
    ("GET", "/events", _events),
    ("GET", "/containers/json", _list),
    ("POST", "/containers/create", _create),
    ("GET", f"{_C}/json", _inspect),
    ("POST", f"{_C}/start", _start),
    ("POST", f"{_C}/stop", _stop),
    ("POST", f"{_C}/restart", _restart),
    ("POST", f"{_C}/kill", _kill),
    ("POST", f"{_C}/rename", _rename),
    ("POST", f"{_C}/wait", _wait),
    ("GET", f"{_C}/logs", _logs),
    ("GET", f"{_C}/top", _top),
    ("DELETE", _C, _remove),
    ("GET", "/images/json", _images),
    ("GET", "/system/df", _disk_usage),
    ("POST", "/images/create", _pull),
    ("GET", "/images/(.+)/json", _image),
    ("DELETE", "/images/(.+)", _remove_image),
)
