"""A vision projector for llama-server with random weights, written as GGUF: real plumbing, and no sight at all.

With it llama-server takes, decodes and counts pictures as it does with a trained one; what the model says of them
is noise.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from pathlib import Path

WIDTH, FEED, HEADS, LAYERS, PATCH, SIDE = 32, 64, 2, 2, 14, 56
STRING, UINT32, FLOAT32, BOOL, ARRAY = 8, 4, 6, 7, 9
ALIGNMENT = 32


def write_projector(path: Path, embedding: int) -> None:
    """A two-layer CLIP encoder and a two-layer projector into a model with so wide an embedding."""
    pick = random.Random(0)
    tensors = [(name, dims, _numbers(pick, dims)) for name, dims in _shapes(embedding).items()]
    facts = (
        _text("general.architecture", "clip"), _flag("clip.has_vision_encoder"), _flag("clip.use_gelu"),
        _text("clip.projector_type", "mlp"), _int("clip.vision.image_size", SIDE),
        _int("clip.vision.patch_size", PATCH),
        _int("clip.vision.embedding_length", WIDTH), _int("clip.vision.feed_forward_length", FEED),
        _int("clip.vision.projection_dim", embedding), _int("clip.vision.block_count", LAYERS),
        _int("clip.vision.attention.head_count", HEADS),
        _key("clip.vision.attention.layer_norm_epsilon", FLOAT32) + struct.pack("<f", 1e-5),
        _floats("clip.vision.image_mean"), _floats("clip.vision.image_std"),
    )  # fmt: skip
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join(facts)
    offset, body = 0, b""
    for name, dims, numbers in tensors:
        data = numbers.tobytes()
        head += _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
        body += data + b"\0" * (-len(data) % ALIGNMENT)
        offset = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % ALIGNMENT) + body)


def _shapes(embedding: int) -> dict[str, tuple[int, ...]]:
    """Dimensions, the fastest first, as GGUF has them."""
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (PATCH, PATCH, 3, WIDTH),
        "v.position_embd.weight": (WIDTH, (SIDE // PATCH) ** 2),
        "mm.0.weight": (WIDTH, embedding), "mm.0.bias": (embedding,),
        "mm.2.weight": (embedding, embedding), "mm.2.bias": (embedding,),
    }  # fmt: skip
    for n in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            shapes |= {f"v.blk.{n}.{part}.weight": (WIDTH, WIDTH), f"v.blk.{n}.{part}.bias": (WIDTH,)}
        shapes |= {f"v.blk.{n}.{part}.{what}": (WIDTH,) for part in ("ln1", "ln2") for what in ("weight", "bias")}
        shapes |= {f"v.blk.{n}.ffn_up.weight": (WIDTH, FEED), f"v.blk.{n}.ffn_up.bias": (FEED,)}
        shapes |= {f"v.blk.{n}.ffn_down.weight": (FEED, WIDTH), f"v.blk.{n}.ffn_down.bias": (WIDTH,)}
    return shapes


def _numbers(pick: random.Random, dims: tuple[int, ...]) -> array[float]:
    return array("f", (pick.gauss(0, 0.02) for _ in range(math.prod(dims))))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _key(name: str, kind: int) -> bytes:
    return _string(name) + struct.pack("<I", kind)


def _text(name: str, value: str) -> bytes:
    return _key(name, STRING) + _string(value)


def _flag(name: str) -> bytes:
    return _key(name, BOOL) + b"\1"


def _int(name: str, value: int) -> bytes:
    return _key(name, UINT32) + struct.pack("<I", value)


def _floats(name: str) -> bytes:
    return _key(name, ARRAY) + struct.pack("<IQ3f", FLOAT32, 3, 0.5, 0.5, 0.5)
