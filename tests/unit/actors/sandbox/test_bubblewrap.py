from __future__ import annotations

from roost.actors.sandbox.bubblewrap import bubblewrap_options
from roost.actors.sandbox.places import Places

PLACES = Places(
    hidden=("/home/u/.netrc", "/home/u/roost"),
    exposed=("/home/u/roost/workspaces/a",),
    writable=("/home/u", "/home/u/roost/workspaces/a/w"),
    protected=("/home/u/.git", "/home/u/roost/workspaces/a/w/.git"),
)
FOLDERS = frozenset(("/home/u/roost",))


def text(*, network: bool = False) -> str:
    return " ".join(bubblewrap_options(PLACES, FOLDERS, cwd="/home/u", network=network))


def test_the_network_is_left_out_unless_it_is_wanted() -> None:
    assert "--unshare-net" in text()
    assert "--unshare-net" not in text(network=True)


def test_everything_is_read_only_before_anything_becomes_writable() -> None:
    assert text().index("--ro-bind / /") < text().index("--bind /home/u /home/u")


def test_folders_on_the_way_to_what_is_special_cannot_be_renamed() -> None:
    places = Places(hidden=("/w/a/b/home",), exposed=(), writable=("/w",), protected=("/w/c/.git",))
    options = bubblewrap_options(places, FOLDERS, cwd="/w", network=False)
    bound = [options[at + 1] for at, name in enumerate(options) if name == "--bind"]
    assert bound == ["/w", "/w/a", "/w/a/b", "/w/c"]


def test_a_repository_is_closed_after_its_folder_has_been_opened() -> None:
    opened = text().index("--bind /home/u /home/u")
    assert opened < text().index("--ro-bind /home/u/.git /home/u/.git")


def test_what_is_hidden_is_covered_last_and_what_is_exposed_shows_through() -> None:
    found = text()
    part = "/home/u/roost/workspaces/a"
    order = [
        "--bind /home/u /home/u",
        "--ro-bind /dev/null /home/u/.netrc",
        "--tmpfs /home/u/roost",
        f"--ro-bind {part} {part}",
        "--remount-ro /home/u/roost",
        "--chdir /home/u",
    ]
    places = [found.index(each) for each in order]
    assert places == sorted(places)
    shown = found.rindex(f" --bind {part}/w {part}/w")
    assert places[3] < shown < found.rindex(f"--ro-bind {part}/w/.git") < places[4]


def test_there_is_no_new_session_for_a_terminal_to_be_lost_in() -> None:
    assert "--new-session" not in text()
    assert "--die-with-parent" in text()
