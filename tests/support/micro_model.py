"""A random model of 0.2 MB and a real llama.cpp server that runs it: the fixture `model_server`.

The model has two layers and a byte-level vocabulary of its own. It says printable noise, thousands of tokens a second,
and never ends by itself: a request needs `max_tokens`, or runs until the context is full. Held to a JSON schema, its
noise is valid and ends with the object.
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

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import gguf

EMBEDDING = 64
HEADS = 2
LAYERS = 2
FEED_FORWARD = 128
CONTEXT = 65_536
PARALLEL = 8
READY_SECONDS = 10.0
VERSION = 2
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
    # Imported here: most runs of the tests find the model made.
    import gguf

    tokens, normal = _vocabulary()
    types = [gguf.TokenType.NORMAL] * normal
    types += [gguf.TokenType.CONTROL] * (len(tokens) - normal)
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
    writer.add_token_types([int(kind) for kind in types])
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


def _vocabulary() -> tuple[list[str], int]:
    """Return one token a byte, in GPT-2's spelling of bytes, two merged ones and two marks; and how many are no marks."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in spelling]
    spelling.update({byte: chr(256 + number) for number, byte in enumerate(hidden)})
    normal = [*(spelling[byte] for byte in range(256)), "th", "in"]
    return [*normal, "<|im_start|>", "<|im_end|>"], len(normal)


def _add_tensors(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    import numpy

    random = numpy.random.default_rng(0)

    def matrix(
        rows: int, columns: int
    ) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float16]]:
        return (random.standard_normal((rows, columns)) * 0.08).astype(numpy.float16)

    def norm(name: str) -> None:
        writer.add_tensor(name, numpy.ones(EMBEDDING, numpy.float32))

    # No layer writes to dimension 0, so it holds the same value all along and serves as the bias of each token.
    embedding = matrix(vocabulary, EMBEDDING)
    embedding[:, 0] = 0.3
    writer.add_tensor("token_embd.weight", embedding)
    output = matrix(vocabulary, EMBEDDING)
    output[:, 0] = [0.0 if _is_said(token) else -10.0 for token in range(vocabulary)]
    norm("output_norm.weight")
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        writer.add_tensor(block + "ffn_gate.weight", matrix(FEED_FORWARD, EMBEDDING))
        writer.add_tensor(block + "ffn_up.weight", matrix(FEED_FORWARD, EMBEDDING))
        for part in ("q", "k", "v"):
            writer.add_tensor(f"{block}attn_{part}.weight", matrix(EMBEDDING, EMBEDDING))
        for name, columns in (("attn_output", EMBEDDING), ("ffn_down", FEED_FORWARD)):
            values = matrix(EMBEDDING, columns)
            values[0, :] = 0.0
            writer.add_tensor(f"{block}{name}.weight", values)


def _is_said(token: int) -> bool:
    """Bytes that make no text by themselves, and the marks, are understood and never said."""
    return token == ord("\n") or ord(" ") <= token <= ord("~") or token in (256, 257)


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
        "--name",
        "micro",
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
