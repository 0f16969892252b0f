"""A line of progress in a notebook, which goes away when the work is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

# Seconds before a line appears at all, and between two of its states.
PATIENCE, _PAUSE = 1.0, 0.25


def in_notebook() -> bool:
    """Whether IPython shows HTML here, as in Jupyter, Colab, Spyder and Databricks.

    The publisher of a terminal is IPython's own, which writes text; a front end brings another.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    publisher = getattr(shell, "display_pub", None)
    if publisher is None:
        return False
    from IPython.core.displaypub import DisplayPublisher

    return getattr(type(publisher), "publish", None) is not DisplayPublisher.publish


def displayed(html: str) -> Any:
    """Show HTML in the notebook, and return what updates it."""
    from IPython.display import HTML, display

    return display(HTML(html), display_id=True)


class NotebookLine:
    """A bar with a text, for work that takes longer than a second.

    What cannot be shown costs nothing: after the first failure the line is silent.

    Parameters
    ----------
    text : str
        What is counted, such as "round".
    total : int
    unit : str
        What follows the total, such as " %".
    show : callable
        Shows HTML, and returns an object with ``update(HTML)``.
    clock : callable
    """

    def __init__(
        self,
        text: str,
        total: int,
        *,
        unit: str = "",
        show: Callable[[str], Any] = displayed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._text, self._total, self._unit = text, total, unit
        self._show, self._clock = show, clock
        self._next = clock() + PATIENCE
        self._shown: Any = None
        self._broken = False

    def update(self, done: int) -> None:
        """Show how much is done, if it is time to."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _PAUSE
        bar = f'<progress value="{done}" max="{self._total}"></progress>'
        self._put(f"{self._text} {done}/{self._total}{self._unit} {bar}")

    def stop(self) -> None:
        """Remove the line."""
        if self._shown is not None:
            self._put("")

    def _put(self, html: str) -> None:
        if self._broken:
            return
        try:
            if self._shown is None:
                self._shown = self._show(html)
            else:
                self._shown.update(_Html(html))
        except Exception:
            self._broken = True


class _Html(str):
    """HTML for a display that is updated."""

    def _repr_html_(self) -> str:
        return str(self)
