"""The display that refreshes: paints what screen.py composes and hears the keys. However it ends, the terminal is as it
was before.
"""

from __future__ import annotations

import curses
import os
import signal
import time
from types import FrameType
from typing import Any

from stretto.top.screen import View, compose
from stretto.top.table import COLUMNS, filter_of
from stretto.top.watcher import Watched, ending

_SHORTEST, _LONGEST = 0.1, 60.0
# Of the processor time of this machine: the job may not notice that it is watched.
_SHARE = 0.004
_ESCAPE_MS = 50
_LONGEST_WAIT_MS = 1000  # for a key: hosts want to hear of us
_ESCAPE, _BACKSPACE, _ENTER = "\x1b", ("\x7f", "\b", curses.KEY_BACKSPACE), ("\n", "\r", curses.KEY_ENTER)
_Key = str | int


def _styles() -> dict[str, int]:
    """Attributes by style; without colours they are told apart by weight."""
    styles = {"": 0, "title": curses.A_BOLD, "heading": curses.A_REVERSE, "sorted": curses.A_REVERSE | curses.A_BOLD}
    styles |= {"bad": curses.A_BOLD, "warning": curses.A_BOLD, "error": curses.A_BOLD, "good": 0, "quiet": curses.A_DIM}
    if curses.has_colors():
        curses.start_color()
        curses.use_default_colors()
        colours = {"bad": curses.COLOR_RED, "error": curses.COLOR_RED, "warning": curses.COLOR_YELLOW}
        colours |= {"good": curses.COLOR_GREEN}
        for pair, (style, colour) in enumerate(colours.items(), 1):
            curses.init_pair(pair, colour, -1)
            styles[style] |= curses.color_pair(pair)
    return styles


def stretched(interval: float, used: float) -> float:
    """Seconds to the next look, when what followed the last one took `used` seconds of processor time; never so few
    that the display takes more of the machine than its share.
    """
    return max(interval, used / (_SHARE * len(os.sched_getaffinity(0))))


class Display:
    """One session at a terminal. `run` returns how the job ended, or None when the user left."""

    def __init__(self, window: curses.window, watcher: Watched, view: View) -> None:
        self._window = window
        self._watcher = watcher
        self._view = view
        self._styles = _styles()
        self._sample = watcher.sample()

    def run(self) -> tuple[dict[str, Any], str | None]:
        window = self._window
        window.keypad(True)
        curses.set_escdelay(_ESCAPE_MS)
        # The first rates follow soon.
        due = time.monotonic() + min(0.3, self._view.interval)
        spent = time.process_time()
        while True:
            self._paint()
            key = self._key(due)
            if key is not None and not self._hear(key):
                return self._sample, None
            if time.monotonic() < due:
                continue
            used, spent = time.process_time() - spent, time.process_time()
            self._view.stretched = stretched(self._view.interval, used)
            due = time.monotonic() + self._view.stretched
            if self._view.paused:
                continue
            sample = self._watcher.sample()
            end = ending(sample)
            if end is not None:
                # Of a job whose communicators are all closed nothing is left to show: its last moment is.
                return (sample if sample["communicators"] else self._sample), end
            self._sample = sample

    def _key(self, due: float) -> _Key | None:
        """What is pressed; None where nothing was when the next look is due."""
        while True:
            left = int((due - time.monotonic()) * 1000) + 1
            self._window.timeout(max(0, min(left, _LONGEST_WAIT_MS)))
            try:
                return self._window.get_wch()
            except curses.error:  # Nothing was pressed.
                self._watcher.rest(0.0)
            if time.monotonic() >= due:
                return None

    def _paint(self) -> None:
        height, width = self._window.getmaxyx()
        self._window.erase()
        for number, line in enumerate(compose(self._sample, self._view, width, height)):
            column = 0
            for text, style in line:
                try:
                    self._window.addstr(number, column, text, self._styles[style])
                except curses.error:
                    break  # The lower right corner, or a window that has just shrunk.
                column += len(text)
        self._window.refresh()

    def _hear(self, key: _Key) -> bool:
        """False to leave."""
        view = self._view
        view.message = ""
        if view.typing is not None:
            self._type(key)
        elif key in ("q", "Q"):
            return False
        elif key in ("?", "h"):
            view.help = not view.help
        elif key == _ESCAPE:
            view.help, view.filter, view.communicator = False, "", None
        elif key == "/":
            view.typing = view.filter
        elif key == " ":
            view.paused = not view.paused
        elif key in ("r", "R"):
            view.reverse = not view.reverse
        elif key in ("<", ">", ",", "."):
            step = 1 if key in (">", ".") else -1
            view.column = COLUMNS[(COLUMNS.index(view.column) + step) % len(COLUMNS)]
        elif key in ("+", "-"):
            view.interval = min(_LONGEST, max(_SHORTEST, view.interval * (0.5 if key == "+" else 2)))
        elif key == "\t":
            self._next_communicator()
        else:
            self._scroll(key)
        return True

    def _type(self, key: _Key) -> None:
        view = self._view
        text = view.typing or ""
        if key in _ENTER:
            try:
                filter_of(text)
            except ValueError as error:
                view.message = str(error)
                return
            view.filter, view.typing = text.strip(), None
        elif key == _ESCAPE:
            view.typing = None
        elif key in _BACKSPACE:
            view.typing = text[:-1]
        elif isinstance(key, str) and key.isprintable():
            view.typing = text + key

    def _next_communicator(self) -> None:
        ids = [one["id"] for one in self._sample["communicators"]]
        after = ids.index(self._view.communicator) + 1 if self._view.communicator in ids else 0
        self._view.communicator = ids[after] if after < len(ids) else None

    def _scroll(self, key: _Key) -> None:
        page = max(1, self._window.getmaxyx()[0] - 3)
        steps = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            "k": -1,
            "j": 1,
            curses.KEY_PPAGE: -page,
            curses.KEY_NPAGE: page,
        }
        steps |= {curses.KEY_HOME: -(10**6), curses.KEY_END: 10**6}
        self._view.scroll = max(0, self._view.scroll + steps.get(key, 0))


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def display(watcher: Watched, view: View) -> tuple[dict[str, Any] | None, str | None]:
    """Shows the job until the user leaves or it ends; the last sample and how it ended. Raises curses.error where the
    terminal is none that curses knows.
    """
    before = {one: signal.signal(one, _leave) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return curses.wrapper(lambda window: Display(window, watcher, view).run())
    except KeyboardInterrupt:
        return None, None
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
