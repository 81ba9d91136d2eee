"""A random model of 0.2 MB and a real llama.cpp server that runs it: the fixture `model_server`.

The model has two layers and a byte-level vocabulary of its own. It says noise, thousands of tokens a second; held to a
JSON schema, its noise is valid.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

EMBEDDING = 64
HEADS = 2
LAYERS = 2
FEED_FORWARD = 128
CONTEXT = 65_536
PARALLEL = 8
READY_SECONDS = 10.0
VERSION = 1
SERVE = Path(__file__).resolve().parents[2] / "bench" / "serve_model.py"

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def micro_gguf() -> Path:
    """Return the model's file, made at the first use on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(cache) / "roost-tests" / f"micro-{VERSION}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        os.close(descriptor)
        write_micro(Path(name))
        Path(name).replace(path)
    return path


def write_micro(path: Path) -> None:
    """Write the model."""
    tokens, kinds = _vocabulary()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("micro-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h", "i n"])
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    _add_tensors(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary() -> tuple[list[str], list[int]]:
    """Return one token a byte, in GPT-2's spelling of bytes, two merged ones and two marks."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in spelling]
    spelling.update({byte: chr(256 + number) for number, byte in enumerate(hidden)})
    normal = [*(spelling[byte] for byte in range(256)), "th", "in"]
    marks = ["<|im_start|>", "<|im_end|>"]
    kinds = [gguf.TokenType.NORMAL] * len(normal) + [gguf.TokenType.CONTROL] * len(marks)
    return normal + marks, [int(kind) for kind in kinds]


def _add_tensors(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    random = numpy.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = random.standard_normal((rows, columns)) * 0.08
        writer.add_tensor(name, values.astype(numpy.float16))

    def norm(name: str) -> None:
        writer.add_tensor(name, numpy.ones(EMBEDDING, numpy.float32))

    matrix("token_embd.weight", vocabulary, EMBEDDING)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        matrix(block + "ffn_up.weight", FEED_FORWARD, EMBEDDING)
        matrix(block + "ffn_down.weight", EMBEDDING, FEED_FORWARD)
        for part in ("q", "k", "v", "output"):
            matrix(f"{block}attn_{part}.weight", EMBEDDING, EMBEDDING)


@contextmanager
def running_model_server(model: Path) -> Generator[str]:
    """Run a llama.cpp server on a free port; yield its address without a path."""
    command = [
        sys.executable,
        "-P",
        str(SERVE),
        str(model),
        "--port",
        "0",
        "--context",
        str(CONTEXT),
        "--parallel",
        str(PARALLEL),
        "--die-with-parent",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield _address(process)
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(READY_SECONDS), "the model server is not ready in time"
    words = process.stdout.readline().decode().split()
    assert len(words) == 2, f"the model server ended with status {process.poll()}"
    return words[1]


@pytest.fixture(scope="session")
def model_server() -> Iterator[str]:
    """A llama.cpp server with the micro model; its address, without `/v1`."""
    with running_model_server(micro_gguf()) as address:
        yield address
