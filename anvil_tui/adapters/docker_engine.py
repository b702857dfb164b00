"""Docker Engine through docker-py: reading and control in two classes that share only the connection.

Containers are addressed by full id everywhere; a name is looked at only to say who holds it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import docker.errors
from docker.types import DeviceRequest, Healthcheck, Mount

from anvil_tui.adapters import docker_shape as shape
from anvil_tui.adapters.docker_adopt import running
from anvil_tui.adapters.docker_files import file_sha256, path_size
from anvil_tui.adapters.docker_link import DockerLink, as_object, daemon_text
from anvil_tui.adapters.docker_logs import LogFollow, tail_lines
from anvil_tui.core.adopt import Running
from anvil_tui.core.box import MIB, Container, Daemon
from anvil_tui.core.errors import EffectFailed, NotFound, Unreachable
from anvil_tui.core.start_failure import daemon_cause
from anvil_tui.core.world import OPERATION_LABEL, RECIPE_LABEL
from anvil_tui.ports import ContainerSpec, LogLine

_FULL_ID = re.compile(r"[0-9a-f]{64}")
_SETTLED = frozenset({"exited", "created", "dead"})
_ENDED = _SETTLED | {"removing"}
# An inspect costs 0.9 ms: of 64 serves every two seconds, 3 % of a core. What only it tells of a container that
# runs on (a process that was OOM-killed, limits that were changed) may come later.
RUNNING_S = 10.0
_YOUNG = re.compile(r"Up (Less than a second|1 second|[2-4] seconds)\b")
# After its grace the daemon kills and waits up to 10 s for the exit event; the answer must not be cut before.
_STOP_MARGIN_S = 30.0
# Unpacking one large layer sends nothing; longer silence is a stuck pull.
_PULL_SILENCE_S = 600.0
_REMOVED_WITHIN_S = 30.0


class DockerReader:
    """Observes one daemon. `timeout_s` bounds each read of an answer.

    `list` inspects only what may have changed: a container when its row says another thing, and what runs also
    every `RUNNING_S`. `inspect` always asks.
    """

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        self._link = DockerLink(url, timeout_s)
        self._known: dict[str, tuple[tuple[str, ...], float, Container]] = {}
        self._pins: dict[str, tuple[str, ...]] = {}

    def list(self) -> tuple[Container, ...]:
        """Every container, newest first. One that vanishes meanwhile is left out; one whose inspect fails
        stays as a row of status `unknown` with the daemon's words in `error`."""
        with self._link.asking("list containers"):
            rows = [as_object(row) for row in self._link.api().containers(all=True)]
        seen = [known for row in rows if (known := self._from_row(row)) is not None]
        self._known = {item.id: (key, at, item) for key, at, item in seen if not item.error}
        used = {item.image_id for _, _, item in seen}
        self._pins = {image: pins for image, pins in self._pins.items() if image in used}
        return tuple(item for _, _, item in seen)

    def _from_row(self, row: Mapping[str, Any]) -> tuple[tuple[str, ...], float, Container] | None:
        """The text of the row, when it was inspected, and what was said."""
        container_id, key, now = str(row.get("Id")), _row_key(row), time.monotonic()
        known = self._known.get(container_id)
        if (
            known
            and known[0] == key
            and (known[2].status in _SETTLED or not (_young(row) or now - known[1] >= RUNNING_S))
        ):
            return known
        with self._link.asking("list containers"):
            try:
                attrs = self._link.container(container_id)
            except docker.errors.NotFound:
                return None
            except docker.errors.APIError as error:
                return key, now, shape.row(row, daemon_text(error))
            return key, now, shape.container(attrs, self._image_pins(str(attrs.get("Image"))))

    def inspect(self, container_id: str) -> Container:
        with self._link.asking(f"inspect {shape.short(container_id)}"):
            attrs = self._link.container(container_id)
            self._pins.pop(str(attrs.get("Image")), None)
            return shape.container(attrs, self._image_pins(str(attrs.get("Image"))))

    def running(self, container_id: str) -> Running:
        """How one container was made, values of its environment included: for a recipe, never to be shown."""
        with self._link.asking(f"inspect {shape.short(container_id)}"):
            attrs = self._link.container(container_id)
            return running(attrs, self._link.image(str(attrs.get("Image"))))

    def _image_pins(self, image_id: str) -> tuple[str, ...]:
        """Repo digests of an image, remembered; none when the image is gone."""
        if image_id not in self._pins:
            try:
                self._pins[image_id] = shape.repo_digests(self._link.image(image_id))
            except docker.errors.APIError:
                return ()
        return self._pins[image_id]

    def image_id(self, ref: str) -> str | None:
        """The local image id behind a pinned reference, or behind a tag (to see whether it moved)."""
        if "@" in ref:
            found = self.image_pin(ref)
            return found[0] if found else None
        with self._link.asking(f"image {ref}"):
            try:
                return str(self._link.image(ref).get("Id"))
            except docker.errors.NotFound:
                return None

    def image_pin(self, ref: str) -> tuple[str, shape.PinKind] | None:
        """Local image id and the kind of digest by which `ref` names it; None when no image here matches."""
        return _find_pin(self._link, ref)

    def logs(self, container_id: str, *, tail: int = 2000) -> tuple[LogLine, ...]:
        return tail_lines(self._link, container_id, tail)

    def follow(self, container_id: str, *, since: str | None = None) -> LogFollow:
        """Lines after the stamp `since` (all lines when None) until the container ends or `close` is called."""
        return LogFollow(self._link, container_id, since)

    def sha256(self, container_id: str, path: str, timeout_s: float) -> str:
        """Hash of one file as the container sees it, streamed by the daemon; `timeout_s` bounds all of it."""
        return file_sha256(self._link, container_id, path, timeout_s)

    def size_of(self, container_id: str, path: str) -> int | None:
        """Bytes of one file as the container sees it, None = a folder."""
        return path_size(self._link, container_id, path)

    def daemon(self) -> Daemon:
        with self._link.asking("version"):
            said = as_object(self._link.api().version())
        return Daemon(*(str(said[key]) if said.get(key) else None for key in ("Version", "KernelVersion")))

    def close(self) -> None:
        self._link.close()


class DockerControl:
    """Changes one daemon. Every call looks before and after, so that a repeated one changes nothing more."""

    def __init__(self, url: str, timeout_s: float = 10.0) -> None:
        self._link = DockerLink(url, timeout_s)
        self._patient = DockerLink(url, max(timeout_s, _STOP_MARGIN_S))
        self._pulling = DockerLink(url, _PULL_SILENCE_S)

    def pull(self, ref: str, on_progress: Callable[[str], None]) -> None:
        """By digest only; done when the daemon has an image that the digest names."""
        if "@sha256:" not in ref:
            raise EffectFailed(f"pull {ref}: not pinned; write NAME@sha256:DIGEST")
        repository, _, digest = ref.partition("@")
        with self._pulling.asking(f"pull {ref}", failure="effect"):
            events = self._pulling.api().pull(repository, tag=digest, stream=True, decode=True)
            for text in pull_progress(events, f"{self._link.endpoint}: pull {ref}"):
                on_progress(text)
        if _find_pin(self._link, ref) is None:
            raise EffectFailed(f"{self._link.endpoint}: pull {ref} ended, but no image here has this digest")

    def create(self, spec: ContainerSpec) -> str:
        """The full id of a new container, or of the one that an earlier try of the same operation made."""
        own = self._own(spec.labels)
        if own is not None:
            return own
        image = self._image(spec.image_ref)
        self._tell_name_holder(spec.name)
        try:
            with self._link.asking(f"create {spec.name}", failure="effect"):
                api = self._link.api()
                return str(api.create_container(**_create_arguments(api, spec, image))["Id"])
        except (EffectFailed, Unreachable):
            own = self._own(spec.labels)  # the answer may be lost while the container was made
            if own is not None:
                return own
            self._tell_name_holder(spec.name)
            raise

    def _own(self, labels: Mapping[str, str]) -> str | None:
        """The container that carries the same operation and recipe labels."""
        wanted = {key: labels[key] for key in (OPERATION_LABEL, RECIPE_LABEL) if labels.get(key)}
        if OPERATION_LABEL not in wanted:
            return None
        with self._link.asking("find own container"):
            filters = {"label": [f"{key}={value}" for key, value in wanted.items()]}
            rows = self._link.api().containers(all=True, filters=filters)
        ids = [str(row["Id"]) for row in rows if wanted.items() <= (row.get("Labels") or {}).items()]
        if len(ids) > 1:
            raise EffectFailed(f"{self._link.endpoint}: {len(ids)} containers carry {wanted}: {', '.join(ids)}")
        return ids[0] if ids else None

    def _image(self, ref: str) -> str:
        """What to name in the create call. EffectFailed lists what is here when the pin matches nothing."""
        found = _find_pin(self._link, ref)
        if found is not None:
            return ref if found[1] == "index" else found[0]
        repository = ref.partition("@")[0]
        with self._link.asking(f"images of {repository}"):
            here = [d for image in self._link.api().images(repository) for d in shape.observed_digests(image)]
        seen = f"of {repository} there are {', '.join(here)}" if here else f"nothing of {repository} is"
        raise EffectFailed(f"{self._link.endpoint}: image {ref} is not here ({seen}); pull it by digest first")

    def _tell_name_holder(self, name: str) -> None:
        """EffectFailed when another container has this very name."""
        with self._link.asking("list containers"):
            rows = self._link.api().containers(all=True, filters={"name": name})
        for row in rows:
            if f"/{name}" in (row.get("Names") or ()):
                raise EffectFailed(
                    f"{self._link.endpoint}: create {name}: the name belongs to container {row['Id']} "
                    f"({row.get('State')}), which is not of this operation; it was not touched"
                )

    def start(self, container_id: str) -> None:
        """EffectFailed names the cause; the container stays, with the daemon's words in its State.Error."""
        try:
            with self._link.asking(f"start {_full(container_id)}", failure="effect"):
                self._link.api().start(container_id)
        except EffectFailed as error:
            cause = daemon_cause(str(error))
            raise EffectFailed(f"{cause.name}: {error}{'; ' + cause.hint if cause.hint else ''}") from error
        except Unreachable:
            if not self._look(container_id).running:
                raise

    def stop(self, container_id: str, grace_s: int) -> None:
        """SIGTERM, then SIGKILL after `grace_s`; returns when the container has exited."""
        before = self._look(_full(container_id))
        if before.status in _ENDED:
            return
        refused: EffectFailed | Unreachable | None = None
        try:
            with self._patient.asking(f"stop {container_id}", failure="effect"):
                if before.status == "paused":
                    self._patient.api().unpause(container_id)
                self._patient.api().stop(container_id, timeout=grace_s)
        except (EffectFailed, Unreachable) as error:
            refused = error
        after = self._look(container_id)
        if after.status not in _ENDED:
            said = f": {refused}" if refused else ""
            raise EffectFailed(
                f"{self._link.endpoint}: stop {container_id}: still {after.status}{said}"
            ) from refused

    def remove(self, container_id: str) -> None:
        """Returns when the id is gone; refuses to remove what runs."""
        try:
            with self._patient.asking(f"remove {_full(container_id)}", failure="effect"):
                self._patient.api().remove_container(container_id, v=True)
        except NotFound:
            return
        except EffectFailed as error:
            if "already in progress" not in str(error):
                raise
        deadline = time.monotonic() + _REMOVED_WITHIN_S
        while time.monotonic() < deadline:
            try:
                self._look(container_id)
            except NotFound:
                return
            time.sleep(0.05)
        raise EffectFailed(f"{self._link.endpoint}: {container_id} is still there after its removal")

    def _look(self, container_id: str) -> Container:
        with self._link.asking(f"inspect {container_id}"):
            return shape.container(self._link.container(container_id))

    def close(self) -> None:
        for link in (self._link, self._patient, self._pulling):
            link.close()


def _full(container_id: str) -> str:
    """The id itself. EffectFailed for a name or a shortened id: those may come to mean another container."""
    if not _FULL_ID.fullmatch(container_id):
        raise EffectFailed(f"{container_id!r} is not a full container id (64 hex digits)")
    return container_id


def _row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What changes with its state. Seconds do not: a container that was started again is young again."""
    status = re.sub(r"Up \d+ seconds", "Up seconds", str(row.get("Status")))
    return str(row.get("State")), status, *map(str, row.get("Names") or ())


def _young(row: Mapping[str, Any]) -> bool:
    """Two starts between two lists can both be so young."""
    return _YOUNG.match(str(row.get("Status"))) is not None


def _find_pin(link: DockerLink, ref: str) -> tuple[str, shape.PinKind] | None:
    """By the reference, then by the digest as an image id (a config or manifest pin)."""
    digest = ref.partition("@")[2]
    for handle in (ref, digest):
        with link.asking(f"image {ref}"):
            try:
                image = link.image(handle)
            except docker.errors.NotFound:
                continue
            by_id = digest == image.get("Id")
            kind = shape.match_pin(digest, image, containerd=by_id and link.containerd_store())
            if kind is not None:
                return str(image.get("Id")), kind
    return None


def _create_arguments(api: docker.APIClient, spec: ContainerSpec, image: str) -> dict[str, Any]:
    """The create call of a serve: host network, own init, never privileged, never restarted by the daemon.

    The image's own health check is switched off: it probes the image's default port, not this serve's.
    """
    return {
        "image": image,
        "name": spec.name,
        "command": list(spec.argv),
        "entrypoint": list(spec.entrypoint) or None,
        "environment": {**spec.env, **_gpu_environment(spec.gpu_uuids)},
        "labels": dict(spec.labels),
        "stop_timeout": spec.stop_grace_s,
        "healthcheck": Healthcheck(test=["NONE"]),
        "host_config": api.create_host_config(
            network_mode="host",
            init=True,
            privileged=False,
            restart_policy={"Name": "no"},
            ipc_mode=spec.ipc,
            shm_size=spec.shm_mib * MIB if spec.shm_mib else None,
            mem_limit=spec.memory_limit_mib * MIB if spec.memory_limit_mib else None,
            memswap_limit=spec.memory_limit_mib * MIB if spec.memory_limit_mib else None,
            nano_cpus=int(spec.cpus * 1e9) if spec.cpus else None,
            mounts=[_mount(*mount) for mount in spec.mounts],
            device_requests=_device_requests(spec.gpu_uuids),
        ),
    }


def _device_requests(uuids: tuple[str, ...]) -> list[DeviceRequest]:
    wrong = [uuid for uuid in uuids if not shape.FULL_GPU_UUID.fullmatch(uuid)]
    if wrong:
        raise EffectFailed(f"not full GPU UUIDs: {', '.join(wrong)}")
    return [DeviceRequest(device_ids=list(uuids), capabilities=[["gpu"]])] if uuids else []


def _gpu_environment(uuids: tuple[str, ...]) -> dict[str, str]:
    """Names exactly the GPUs granted: an image may say `all` here, and the NVIDIA runtime may be the default."""
    visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids) or "void"}
    return {**visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if len(uuids) > 1 else visible


def _mount(source: str, target: str, read_only: bool) -> Mount:
    """A host folder when `source` is absolute (it must exist), else a named volume."""
    return Mount(target, source, type="bind" if source.startswith("/") else "volume", read_only=read_only)


def pull_progress(events: Iterator[Any], what: str) -> Iterator[str]:
    """One line for each change of a percent or of the layers done. EffectFailed when the stream says error."""
    layers: dict[str, tuple[int, int]] = {}
    done: set[str] = set()
    last = ""
    for event in events:
        if event.get("error"):
            raise EffectFailed(f"{what}: {event['error']}")
        layer, status = str(event.get("id") or ""), str(event.get("status") or "")
        detail = event.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            layers[layer] = int(detail.get("current") or 0), int(detail["total"])
        if status in ("Pull complete", "Already exists", "Download complete"):
            done.add(layer)
            layers[layer] = (layers[layer][1], layers[layer][1]) if layer in layers else (0, 0)
        text = _progress_text(layers, done) if layers else status
        if text and text != last:
            last = text
            yield text


def _progress_text(layers: Mapping[str, tuple[int, int]], done: set[str]) -> str:
    have, total = (sum(part) for part in zip(*layers.values(), strict=True))
    share = f"{100 * have // total} % of {total // MIB} MiB, " if total else ""
    return f"{share}{len(done)} of {len(layers)} layers"
