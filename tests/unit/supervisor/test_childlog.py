from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roost.supervisor.childlog import LAST_WORDS, last_words, log_size, open_log, rotate

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_is_made_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    for text in (b"one\n", b"two\n"):
        fd = open_log(path)
        os.write(fd, text)
        os.close(fd)
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert log_size(path) == 8


def test_without_a_file_the_log_is_the_standard_error_of_this_process() -> None:
    fd = open_log(None)
    assert os.path.sameopenfile(fd, 2)
    os.close(fd)
    assert log_size(None) == 0
    assert last_words(None, 0) == ""


def test_last_words_are_what_was_written_since_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("of an earlier life\nnow\n")
    assert last_words(path, len("of an earlier life\n")) == "now"
    assert last_words(path, 1000) == "of an earlier life\nnow"
    assert last_words(tmp_path / "none", 0) == ""


def test_last_words_are_few(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 10_000 + b"\xff the end")
    words = last_words(path, 0)
    assert words.endswith("\ufffd the end")
    assert len(words) <= LAST_WORDS


def test_a_large_log_is_moved_on_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    fd = open_log(path)
    for text in ("first", "second", "third"):
        os.write(fd, text.encode())
        assert rotate(path, 4)
    os.write(fd, b"now")
    os.close(fd)
    assert not rotate(path, 4)
    assert path.read_text() == "now"
    assert path.with_name("a.log.1").read_text() == "hird"
    assert path.with_name("a.log.2").read_text() == "cond"
    assert not path.with_name("a.log.3").exists()
