"""What engine logs tell while loading and when things go wrong: phase, class of a line, root cause. Pure.

KV capacity, which has many forms, is in `kv_log`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anvil_tui.core.kv_log import capacity as capacity
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.text import clean

LineClass = Literal["fatal", "config", "request", "watch", "benign", "unknown"]
PhaseWord = Literal["starting", "pulling", "weights", "compile", "kv", "graphs", "warm-up", "ready"]


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """Where a start is: `done` of `of` steps where the engine counts them (shards, files, graphs)."""

    word: PhaseWord
    done: int | None = None
    of: int | None = None

    def __str__(self) -> str:
        """`weights 7/9 (78 %)`."""
        if not self.of or self.done is None:
            return self.word
        return f"{self.word} {self.done}/{self.of} ({100 * self.done / self.of:.0f} %)"


_BAR = r".*?\|\s*(\d+)/(\d+)"
_PHASES: tuple[tuple[PhaseWord, re.Pattern[str]], ...] = tuple(
    (word, re.compile(pattern))  # type: ignore[misc]
    for word, pattern in (
        ("pulling", rf"Fetching \d+ files:{_BAR}"),
        ("weights", rf"Loading (?:\w+ )*(?:checkpoint )?shards:{_BAR}"),
        ("weights", r"Load weight begin|Starting to load model|load_model: loading model|main: loading model"),
        ("compile", r"torch\.compile takes|Dynamo bytecode transform|Compiling a graph|Start compil"),
        (
            "kv",
            r"KV [Cc]ache (?:is )?allocated|KV cache size: [\d,]+ tokens|KV buffer size =|max_total_num_tokens=",
        ),
        ("graphs", rf"Capturing (?:\w+ )?(?:CUDA graphs?|batches|decode|prefill)\b{_BAR}"),
        ("graphs", r"Capture (?:cuda|draft)[\w ]*graph begin|Capturing (?:the model for )?CUDA graphs?"),
        ("warm-up", r"Starting vLLM (?:API )?server|init: llama threadpool init|Uvicorn running on"),
        ("ready", r"Application startup complete|The server is fired up and ready|listening on http://"),
        ("ready", r"server is listening on http://"),
    )
)
_LAYERS = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")


def load_phase(kind: EngineKind, lines: Iterable[str]) -> LoadPhase:
    """The newest phase that the log names; `starting` before the first."""
    phase = LoadPhase("starting")
    for line in lines:
        for word, pattern in _PHASES:
            match = pattern.search(line)
            if match and not (kind is EngineKind.SGLANG and word == "ready" and "Application startup" in match[0]):
                done, of = (int(match[1]), int(match[2])) if match.groups() else (None, None)
                phase = LoadPhase(word, done, of)
                break
    return phase


def gpu_layers(lines: Iterable[str]) -> tuple[int, int] | None:
    """(layers on GPUs, layers) as llama.cpp reports them; 0 of N means that it runs on the CPU."""
    found = [match for line in lines if (match := _LAYERS.search(line))]
    return (int(found[-1][1]), int(found[-1][2])) if found else None


@dataclass(frozen=True, slots=True)
class _Sign:
    """A signature: the class of a line and a stable name. `echo` repeats a cause told earlier in the log."""

    cls: LineClass
    name: str
    pattern: re.Pattern[str]
    kinds: tuple[EngineKind, ...] = ()
    echo: bool = False


def _sign(cls: LineClass, name: str, pattern: str, *kinds: EngineKind, echo: bool = False) -> _Sign:
    return _Sign(cls, name, re.compile(pattern), kinds, echo)


_V, _S, _L = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP
# The first match decides, so the particular stands before the general.
_SIGNS: tuple[_Sign, ...] = (
    # Named causes of a start that cannot work.
    _sign(
        "config", "insufficient_free_vram_at_start", r"Free memory on device \S+ \([\d.]+/[\d.]+ GiB\) on startup"
    ),
    _sign("config", "kv_does_not_fit", r"No available memory for the cache blocks", _V),
    _sign("config", "context_does_not_fit", r"To serve at least one request with the model's max seq len", _V),
    _sign("config", "warmup_out_of_memory", r"CUDA out of memory occurred when warming up sampler", _V),
    _sign("config", "kv_does_not_fit", r"Not enough memory\. Please try to increase --mem-fraction-static", _S),
    _sign("config", "warmup_failed", r"Initialization failed\. warmup error", _S),
    _sign("config", "gpu_out_of_memory", r"cudaMalloc failed: out of memory", _L),
    _sign("config", "kv_does_not_fit", r"failed to allocate .*KV cache", _L),
    _sign("config", "entrypoint_missing", r"\[FATAL tini \(\d+\)\] exec \S+ failed"),
    _sign("config", "port_in_use", r"couldn't bind HTTP server socket|\[Errno 98\]|address already in use"),
    _sign(
        "config", "bad_argument", r"error: invalid argument: |error: unrecognized arguments: |error: argument --"
    ),
    _sign("config", "model_not_loaded", r"failed to load model|error loading model", _L),
    _sign("config", "model_not_loaded", r"exiting due to model loading error", _L, echo=True),
    _sign("config", "no_gpu", r"no CUDA-capable device is detected"),
    _sign("config", "driver_too_old", r"CUDA driver version is insufficient"),
    _sign("config", "fabric_not_ready", r"system not yet initialized"),
    _sign("config", "wrong_gpu_architecture", r"no kernel image is available for execution on the device"),
    # Named causes of death.
    _sign("fatal", "shm_full", r"failed to extend /dev/shm/|Error while creating shared memory segment /dev/shm/"),
    _sign("fatal", "gpu_out_of_memory", r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory\. Tried)"),
    _sign("fatal", "nccl_error", r"NCCL error in: |DistBackendError"),
    _sign("fatal", "collective_timeout", r"Watchdog caught collective operation timeout"),
    _sign(
        "fatal", "cuda_error", r"CUDA error: |an illegal memory access was encountered|unspecified launch failure"
    ),
    _sign(
        "fatal",
        "cuda_error",
        r"device-side assert triggered|misaligned address|uncorrectable ECC error|launch timed",
    ),
    _sign(
        "fatal",
        "crash_signal",
        r"Fatal Python error: |\*\*\* SIG\w+ received at time=|!!! Segfault encountered !!!",
    ),
    _sign("fatal", "crash_signal", r"Floating point exception \(core dumped\)|Segmentation fault \(core dumped\)"),
    _sign("fatal", "scheduler_died", r"(?:Scheduler|DetokenizerManager|TokenizerManager) hit an exception", _S),
    _sign("fatal", "watchdog_timeout", r"watchdog timeout \(", _S),
    _sign("fatal", "subprocess_died", r"Subprocess \S+ \(pid=\d+\) crashed with exit code", _S),
    _sign("fatal", "child_failed", r"Received sigquit from a child process|SIGQUIT received\.", _S, echo=True),
    _sign("fatal", "detokenizer_silent", r"Health check failed\. Server couldn't get a response", _S),
    _sign("fatal", "worker_died", r"Worker proc \S+ died unexpectedly", _V),
    _sign(
        "fatal", "engine_died", r"EngineCore encountered a fatal error|Dumping input data for V1 LLM engine", _V
    ),
    _sign("fatal", "engine_died", r"Executor failed|RPC call to .*timed out|AsyncLLM output_handler failed", _V),
    _sign("fatal", "engine_died", r"WorkerProc hit an exception", _V, echo=True),
    _sign("fatal", "engine_died", r"EngineCore encountered an issue|EngineDeadError", _V, echo=True),
    _sign(
        "fatal",
        "engine_died",
        r"Engine core proc \S+ died|MPClient: engine core exited unexpectedly",
        _V,
        echo=True,
    ),
    _sign(
        "config",
        "engine_not_started",
        r"EngineCore failed to start|Engine core initialization failed",
        _V,
        echo=True,
    ),
    _sign("config", "engine_not_started", r"WorkerProc (?:failed to start|initialization failed)", _V, echo=True),
    # One request.
    _sign("request", "pool_exhausted", r"Out of memory even after retracting all other requests", _S),
    _sign("request", "grammar_rejected", r"Tokens not accepted: ", _S),
    _sign("request", "context_exceeded", r"exceed_context_size_error", _L),
    # Worth a look.
    _sign("watch", "shm_block_wait", r"No available shared memory broadcast block found in", _V),
    _sign("watch", "grammar_error", r"Failed to advance FSM for request|grammar rejected tokens", _V),
    _sign("watch", "kv_pressure", r"KV cache pool is full\. Retract requests|Decode out of memory happened", _S),
    _sign("watch", "kv_pressure", r"failed to find free space in the KV cache", _L),
    _sign("watch", "nccl_warning", r"NCCL WARN "),
    # Looks bad, is not.
    _sign("benign", "nccl_info", r"NCCL INFO |NET/Plugin ?: (?:Could not find|No plugin found)"),
    _sign(
        "benign", "at_exit", r"destroy_process_group\(\) was not called|leaked (?:shared_memory|semaphore) objects"
    ),
    _sign("benign", "at_exit", r"\[shutdown\] |Shutdown initiated \(timeout=|Draining \d+ in-flight requests", _V),
    _sign(
        "benign", "tuning", r"Using default MoE config|Custom allreduce is disabled|Not enough SMs to use max_auto"
    ),
    _sign("benign", "tuning", r"kernel JIT|Kernel JIT monitor|Cudagraph is disabled|Enforce eager set", _V),
    _sign("benign", "deprecation", r"pynvml package is deprecated|TypedStorage is deprecated|is deprecated"),
    _sign(
        "benign", "library_noise", r"Unclosed client session|TOKENIZERS_PARALLELISM|Guessing device ID|Xet Storage"
    ),
)


def _find(kind: EngineKind, line: str) -> _Sign | None:
    return next((s for s in _SIGNS if (not s.kinds or kind in s.kinds) and s.pattern.search(line)), None)


def signature(kind: EngineKind, line: str) -> str:
    """The stable name of what a line says, "" for a line that no signature knows."""
    sign = _find(kind, line)
    return sign.name if sign else ""


def classify(kind: EngineKind, line: str) -> LineClass:
    """How much one line matters. A `Traceback` by itself is unknown: a bad request prints one, too."""
    sign = _find(kind, line)
    return sign.cls if sign else "unknown"


@dataclass(frozen=True, slots=True)
class RootCause:
    """`name` is a stable class; `text` the line that says it; `numbers` what it states, GiB unless named else."""

    name: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


_PREFIX = re.compile(r"^(?:\x1b\[[0-9;]*m)*(?:\([A-Za-z]\w*(?: \w+=\d+)* pid=\d+\)\s*)+(?:\x1b\[[0-9;]*m)*")
_RECORD = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d [\d:.]+ \[?[^\]]+\] ?")
_SG_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\] ")
_ERROR_LINE = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b)")
_FREE = re.compile(
    r"Free memory on device (?:\w+:)?(?P<device>\d+)\S* \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is "
    r"less than desired GPU memory utilization \((?P<fraction>[\d.]+), (?P<wanted>[\d.]+) GiB\)"
)
_FIT = re.compile(
    r"max seq len \((?P<context_tokens>\d+)\), \(?(?P<needed>[\d.]+) GiB KV cache is needed.*?"
    r"available KV cache memory \((?P<available>[\d.]+) GiB\)"
    r"(?:.*?estimated maximum model length is (?P<fits_tokens>\d+))?"
)
_OOM = re.compile(
    r"Tried to allocate (?P<wanted>[\d.]+) (?P<unit>[KMG])iB\. GPU (?P<device>\d+) has a total capaci?ty of "
    r"(?P<total>[\d.]+) GiB of which (?P<free>[\d.]+) (?P<free_unit>[KMG])iB is free"
)
_UNITS = {"K": 1 / 1024 / 1024, "M": 1 / 1024, "G": 1.0}


def root_cause(kind: EngineKind, lines: Sequence[str]) -> RootCause | None:
    """Why an engine died or did not start: the first named cause, else the end of the first traceback,
    else the first echo of a cause that the log no longer holds. None when the log names nothing."""
    echo: RootCause | None = None
    for line in lines:
        sign = _find(kind, line)
        if sign is None or sign.cls not in ("fatal", "config"):
            continue
        cause = RootCause(sign.name, clean(bare(line), 600), _numbers(line))
        if not sign.echo:
            return cause
        echo = echo or cause
    return _traceback(lines) or echo


def _numbers(line: str) -> dict[str, float]:
    if match := _FREE.search(line):
        found = {key: float(value) for key, value in match.groupdict().items()}
        return {**found, "short": round(found["wanted"] - found["free"], 2)}
    if match := _FIT.search(line):
        return {key: float(value) for key, value in match.groupdict().items() if value}
    if match := _OOM.search(line):
        wanted, free = (
            float(match["wanted"]) * _UNITS[match["unit"]],
            float(match["free"]) * _UNITS[match["free_unit"]],
        )
        return {"device": float(match["device"]), "wanted": wanted, "total": float(match["total"]), "free": free}
    return {}


def _traceback(lines: Sequence[str]) -> RootCause | None:
    """The exception line of the first traceback: the later ones of a multi-process start are echoes."""
    inside = False
    for line in lines:
        text = bare(line)
        if "Traceback (most recent call last)" in text:
            inside = True
        elif inside and _ERROR_LINE.match(text):
            return RootCause(text.partition(":")[0].rpartition(".")[2], clean(text, 600))
    return None


def bare(line: str) -> str:
    """A line without process prefix, colours, level, date and source."""
    text = _RECORD.sub("", _PREFIX.sub("", line).replace("\r", ""))
    return _SG_STAMP.sub("", text).strip("\n") if text.startswith("[") else text.rstrip("\n")
