"""The tool `edit_file`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import trio

from roost.actors.agent.tools.paths import file_error, open_regular, resolve
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed
from roost.actors.agent.tools.write_file import replace_file

if TYPE_CHECKING:
    from roost.schemas.base import CallId
    from roost.schemas.event import Risk

MAX_FILE = 16 * 1024 * 1024


class EditFileArguments(Arguments, frozen=True, kw_only=True):
    """`old_text` must be there exactly once, unless `replace_all`."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    old_text: Annotated[str, msgspec.Meta(min_length=1)]
    new_text: str
    replace_all: bool = False


class EditFile(Tool[EditFileArguments]):
    """Replaces one text in a file by another."""

    name = "edit_file"
    description = (
        "Replace old_text by new_text in a file. old_text must be in it exactly once, "
        "unless replace_all is true."
    )
    risk: ClassVar[Risk] = "write"
    arguments = EditFileArguments

    async def run(
        self, call_id: CallId, arguments: EditFileArguments, around: Surroundings
    ) -> object:
        """Return how often it was replaced. Cancelled, the file is the old or the new one."""
        return await trio.to_thread.run_sync(_edit, arguments, around)


def _edit(arguments: EditFileArguments, around: Surroundings) -> dict[str, object]:
    path = resolve(arguments.path, around, writes=True)
    fd, found = open_regular(path)
    try:
        with os.fdopen(fd, "rb") as file:
            if found.st_size > MAX_FILE:
                raise ToolFailed("FILE_TOO_LARGE", f"The file is larger than {MAX_FILE} bytes")
            data = file.read(MAX_FILE)
    except OSError as error:
        raise file_error(error) from error
    old, new = arguments.old_text.encode(), arguments.new_text.encode()
    count = data.count(old)
    if count == 0:
        raise ToolFailed("TEXT_NOT_FOUND", "old_text is not in the file")
    if count > 1 and not arguments.replace_all:
        raise ToolFailed("TEXT_NOT_UNIQUE", f"old_text is in the file {count} times")
    replace_file(path, data.replace(old, new))
    return {"path": str(path), "replaced": count}
