"""Translates a line of Git's ignore rules into an expression that never takes long, whatever it is and is held against.

`pathspec` reads the line. Its expressions also match what lies below a match; here a rule is for the entry itself
alone, as in Git: an ignored directory is not entered, so nothing below it is ever asked about. Its stars try every
length in every combination; here each, and what follows it up to the next, takes the earliest place where it fits and
no other. That is enough, because what follows a star has one length: whatever fits later still has room.
"""

from __future__ import annotations

import re

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_DIRECTORY_MARK = "(?P<ps_d>/)"
_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": " \t\r\f\v",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}
_ANY_ABOVE, _ANY_BETWEEN, _END = "(?:.+/)?", "(?:/.+)?", "(?:/|$)"
_STAR, _WHOLE, _ONE = "[^/]*", "[^/]+", "[^/]"
_TOKEN = re.compile(
    "|".join(re.escape(one) for one in (_ANY_ABOVE, _ANY_BETWEEN, _END, _STAR, _WHOLE, _ONE))
    + r"|\\.|\[\^?\]?[^]]*\]|.",
    re.DOTALL,
)
_MANY_STARS = re.compile(r"(^!?|/)\*{3,}(?=/|\s*$)")
_SOME_DIRECTORIES = "(?:[^/]++/)*?"
_AT_END = r"(?=/|\Z)"


def translate(line: str) -> tuple[str, bool] | None:
    """Return the expression of a line, and whether it ignores; None if it says nothing."""
    line = line.removesuffix("\r")
    if "[:" in line:
        for name, characters in _CLASSES.items():
            line = line.replace(name, characters)
    line = _MANY_STARS.sub(r"\1**", line)  # as Git has it
    try:
        source, ignored = GitIgnoreSpecPattern.pattern_to_regex(line)
    except GitIgnorePatternError:
        return None
    if source is None or ignored is None:
        return None
    text = line.rstrip() if not line.endswith("\\ ") else line
    source = source.replace(_DIRECTORY_MARK, "/")
    if source == ".":
        return source, ignored
    if source != "/":
        source = _without_choices(source)
    if text.endswith("/**/") or source == "/":
        return rf"{source}.*/\Z" if source != "/" else r"/\Z", ignored
    if text.endswith("/"):
        return rf"{source}\Z", ignored
    return (f"{source}." if text.endswith("/**") else rf"{source}\Z"), ignored


def _without_choices(source: str) -> str:
    """Return an expression of `pathspec` so that every part of it fits in one place at most."""
    done = ""
    before = ""
    names: list[list[str]] = [[]]
    for token in _TOKEN.findall(source.removeprefix("^")):
        if token == _ANY_ABOVE:
            before = _SOME_DIRECTORIES
        elif token == _ANY_BETWEEN:
            done += f"(?>{before}{_join(names)}{_AT_END})"
            before = ""
            names = [[]]
        elif token == "/":
            if done and names == [[]] and not before:
                before = f"/{_SOME_DIRECTORIES}"
            else:
                names.append([])
        elif token != _END:
            names[-1].append(token)
    end = _END if source.endswith(_END) else ""
    return f"^{done}{before}{_join(names)}{end}"


def _join(names: list[list[str]]) -> str:
    return "/".join(_name(tokens) for tokens in names)


def _name(tokens: list[str]) -> str:
    """Return the expression of one name in a path."""
    if tokens and all(token in (_STAR, _WHOLE) for token in tokens):
        return "[^/]++"
    pieces = [""]
    for token in tokens:
        if token == _STAR:
            pieces.append("")
        else:
            pieces[-1] += _one(token)
    if len(pieces) == 1:
        return pieces[0]
    first, *between, last = pieces
    found = first + "".join(f"(?>[^/]*?{piece})" for piece in between if piece)
    return found + (f"(?>[^/]*{last}{_AT_END})" if last else "[^/]*+")


def _one(token: str) -> str:
    """Return the expression of one character; no list of characters has a slash in it, whatever it says."""
    if token.startswith("[") and token not in (_ONE, "["):
        return "(?!/)" + token.replace("[[", "[\\[")
    return token
