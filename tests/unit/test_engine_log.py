# ruff: noqa: E501 - engine and daemon lines stand as they are written
"""Load phases, classes of log lines, root causes (engine facts §4)."""

from __future__ import annotations

import pytest

from anvil_tui.core.engine_log import LineClass, LoadPhase, classify, gpu_layers, load_phase, root_cause
from anvil_tui.core.recipe import EngineKind

VLLM, SGLANG, LLAMA = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP

FREE = (
    "(EngineCore pid=3310) ERROR 09-02 10:00:04 [core.py:900] ValueError: Free memory on device cuda:0 (1.84/94.97 GiB)"
    " on startup is less than desired GPU memory utilization (0.95, 90.22 GiB). Decrease GPU memory utilization or "
    "reduce GPU memory used by other processes."
)


def test_start_without_free_memory_tells_its_numbers() -> None:
    """O-11, llm-d-incubation/llm-d-fast-model-actuation#709."""
    cause = root_cause(VLLM, ["INFO loading", FREE, "EngineCore failed to start."])
    assert cause is not None
    assert cause.name == "insufficient_free_vram_at_start"
    assert cause.numbers == {
        "device": 0,
        "free": 1.84,
        "total": 94.97,
        "fraction": 0.95,
        "wanted": 90.22,
        "short": 88.38,
    }
    assert cause.text.startswith("ValueError: Free memory on device cuda:0")


def test_context_that_does_not_fit_tells_what_would() -> None:
    line = (
        "ValueError: To serve at least one request with the model's max seq len (524288), (48.00 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (35.72 GiB). Based on the available memory, the estimated "
        "maximum model length is 390144."
    )
    cause = root_cause(VLLM, [line])
    assert cause is not None
    assert (cause.name, cause.numbers["fits_tokens"], cause.numbers["available"]) == (
        "context_does_not_fit",
        390144,
        35.72,
    )


def test_first_named_cause_beats_later_echoes() -> None:
    lines = [
        "(Worker_TP1 pid=9) ERROR 09-02 10:00:01 [multiproc_executor.py:1] WorkerProc failed to start.",
        "(Worker_TP1 pid=9) ERROR 09-02 10:00:01 [multiproc_executor.py:1] Traceback (most recent call last):",
        "(Worker_TP1 pid=9) ERROR 09-02 10:00:01 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "2.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 512.00 MiB is free.",
        "(EngineCore pid=3) ERROR 09-02 10:00:02 [core.py:1] Engine core initialization failed. See root cause above.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    cause = root_cause(VLLM, lines)
    assert cause is not None
    assert cause.name == "gpu_out_of_memory"
    assert cause.numbers == {"device": 1, "wanted": 2.0, "total": 79.1, "free": 0.5}


def test_unnamed_cause_is_the_first_traceback() -> None:
    lines = [
        "(EngineCore pid=3) ERROR 09-02 10:00:02 [core.py:1] EngineCore failed to start.",
        "(EngineCore pid=3) ERROR 09-02 10:00:02 [core.py:1] Traceback (most recent call last):",
        '(EngineCore pid=3) ERROR 09-02 10:00:02 [core.py:1]   File "a.py", line 1, in f',
        "(EngineCore pid=3) ERROR 09-02 10:00:02 [core.py:1] huggingface_hub.errors.HFValidationError: bad repo id",
        "Traceback (most recent call last):",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    cause = root_cause(VLLM, lines)
    assert cause is not None
    assert (cause.name, cause.text) == (
        "HFValidationError",
        "huggingface_hub.errors.HFValidationError: bad repo id",
    )


def test_echo_alone_is_better_than_nothing_and_nothing_is_none() -> None:
    cause = root_cause(VLLM, ["vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."])
    assert cause is not None
    assert cause.name == "engine_died"
    assert root_cause(VLLM, ["INFO all is well", ""]) is None


def test_cause_text_is_sanitised() -> None:
    cause = root_cause(LLAMA, ["\x1b[31merror: invalid argument: --no-mmap\x1b[0m\x07"])
    assert cause is not None
    assert (cause.name, cause.text) == ("bad_argument", "error: invalid argument: --no-mmap")


@pytest.mark.parametrize(
    ("kind", "line", "cls"),
    [
        (VLLM, "EngineCore encountered a fatal error.", "fatal"),
        (VLLM, "Worker proc VllmWorker-0 died unexpectedly, shutting down executor. (exit code: -8)", "fatal"),
        (VLLM, "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "fatal"),
        (VLLM, "[shutdown] API server: stopping engine client mode=abort timeout=0s", "benign"),
        (VLLM, "EngineCore failed to start.", "config"),
        (
            VLLM,
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "config",
        ),
        (VLLM, "No available shared memory broadcast block found in 60 seconds.", "watch"),
        (VLLM, "Failed to advance FSM for request r1 for tokens 5. Please file an issue.", "watch"),
        (
            VLLM,
            "Using default MoE config. Performance might be sub-optimal! Config file not found at /x",
            "benign",
        ),
        (VLLM, "Traceback (most recent call last):", "unknown"),
        (VLLM, "INFO: 127.0.0.1 - GET /health 200", "unknown"),
        (
            SGLANG,
            "[2026-01-02 03:04:05 TP0] Scheduler hit an exception: Traceback (most recent call last):",
            "fatal",
        ),
        (SGLANG, "Not enough memory. Please try to increase --mem-fraction-static.", "config"),
        (SGLANG, "Out of memory even after retracting all other requests in the decode batch", "request"),
        (SGLANG, "KV cache pool is full. Retract requests. #retracted_reqs: 1", "watch"),
        (SGLANG, "/get_server_info is deprecated, use /server_info", "benign"),
        (
            LLAMA,
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: "
            "out of memory",
            "config",
        ),
        (LLAMA, "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "config"),
        (LLAMA, "failed to load model '/models/none.gguf'", "config"),
        (LLAMA, "[FATAL tini (7)] exec /usr/bin/none failed: No such file or directory", "config"),
        (LLAMA, "CUDA error: an illegal memory access was encountered", "fatal"),
        (VLLM, "NCCL INFO NET/Plugin: Could not find: libnccl-net.so.", "benign"),
        (VLLM, "host:1:2 [0] NCCL WARN Cuda failure 'out of memory'", "watch"),
        (
            VLLM,
            "Error: failed to extend /dev/shm/nccl-Ab12 to 9637892 bytes, error: No space left on device",
            "fatal",
        ),
        (VLLM, "Fatal Python error: Floating point exception", "fatal"),
        (VLLM, "pynvml package is deprecated. Please install nvidia-ml-py instead.", "benign"),
    ],
)
def test_classes(kind: EngineKind, line: str, cls: LineClass) -> None:
    assert classify(kind, line) == cls


VLLM_LOAD = [
    ("INFO 09-02 10:00:00 [api_server.py:1] vLLM API server version 0.33.0", LoadPhase("starting")),
    ("Fetching 9 files:  33%|###3      | 3/9 [00:01<00:02]", LoadPhase("pulling", 3, 9)),
    ("INFO Starting to load model /models/m...", LoadPhase("weights")),
    (
        "Loading safetensors checkpoint shards:  78% Completed | 7/9 [01:52<00:32, 16.0s/it]",
        LoadPhase("weights", 7, 9),
    ),
    ("INFO [backends.py:1] Dynamo bytecode transform time: 5.1 s", LoadPhase("compile")),
    ("INFO GPU KV cache size: 412,656 tokens", LoadPhase("kv")),
    (
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|####5     | 30/67 [00:03<00:04]",
        LoadPhase("graphs", 30, 67),
    ),
    ("INFO Starting vLLM server on http://0.0.0.0:8000", LoadPhase("warm-up")),
    ("INFO:     Application startup complete.", LoadPhase("ready")),
]
SGLANG_LOAD = [
    ("[2026-01-02 03:04:05 TP0] Load weight begin. avail mem=90.1 GB", LoadPhase("weights")),
    ("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01]", LoadPhase("weights", 2, 4)),
    (
        "[2026-01-02 03:04:05 TP0] KV Cache is allocated. #tokens: 9, K size: 1.00 GB, V size: 1.00 GB",
        LoadPhase("kv"),
    ),
    (
        "[2026-01-02 03:04:05 TP0] Capture cuda graph begin. This can take up to several minutes.",
        LoadPhase("graphs"),
    ),
    (
        "Capturing batches (bs=160 avail_mem=9.8 GB):  20%|##        | 4/23 [00:01<00:04]",
        LoadPhase("graphs", 4, 23),
    ),
    ("INFO:     Application startup complete.", LoadPhase("graphs", 4, 23)),
    ("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)", LoadPhase("warm-up")),
    ("[2026-01-02 03:04:05] The server is fired up and ready to roll!", LoadPhase("ready")),
]
LLAMA_LOAD = [
    ("0.00.004.617 I srv  llama_server: initializing ...", LoadPhase("starting")),
    ("0.00.055.848 I srv    load_model: loading model '/models/m.gguf'", LoadPhase("weights")),
    ("0.00.786.854 I cmn          init: llama threadpool init, n_threads = 1", LoadPhase("warm-up")),
    ("0.01.088.192 I srv  llama_server: listening on http://127.0.0.1:18091", LoadPhase("ready")),
]


@pytest.mark.parametrize(("kind", "load"), [(VLLM, VLLM_LOAD), (SGLANG, SGLANG_LOAD), (LLAMA, LLAMA_LOAD)])
def test_phases_in_order(kind: EngineKind, load: list[tuple[str, LoadPhase]]) -> None:
    for n, (_, phase) in enumerate(load, 1):
        assert load_phase(kind, [line for line, _ in load[:n]]) == phase


@pytest.mark.parametrize(
    ("line", "layers"),
    [
        ("load_tensors: offloaded 0/33 layers to GPU", (0, 33)),
        ("x offloaded 20/33 layers to GPU", (20, 33)),
        ("x", None),
    ],
)
def test_layers_on_gpu(line: str, layers: tuple[int, int] | None) -> None:
    assert gpu_layers(["noise", line, "noise"]) == layers
