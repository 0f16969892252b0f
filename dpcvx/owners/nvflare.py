"""Owners as sites of NVIDIA FLARE, ``dpcvx[nvflare]``: two installed classes, no code in jobs.

A job only names `OwnerSite` and `Rounds`. The policy of a site is its own ``local/owner.toml``, and
the server's model is its own ``local/model.py``. The site of the agent ``zone 1`` is called
``zone_1``. Frames travel as auxiliary messages between the job's processes.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType  # pyright: ignore[reportMissingImports]
from nvflare.apis.executor import Executor  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_constant import ReturnCode  # pyright: ignore[reportMissingImports]
from nvflare.apis.impl.controller import Controller  # pyright: ignore[reportMissingImports]
from nvflare.apis.shareable import Shareable, make_reply  # pyright: ignore[reportMissingImports]
from threadpoolctl import ThreadpoolController

from .._arguments import POSITIVE, check_argument
from ..errors import DpcvxError
from .cli import lead
from .coordinator import Remote
from .files import CoordinatorLog
from .keys import stem
from .loopback import GREETING, RequestHub
from .owner import session_of
from .policy import read_policy
from .session import Session

_TOPIC, _FRAME = "dpcvx", "frame"


def _local(engine: Any) -> Path:
    """Return the party's configuration folder, which its administrator writes, and no job can."""
    return Path(engine.get_workspace().get_site_config_dir())


class OwnerSite(Executor):
    """Executor of NVIDIA FLARE that holds one owner's session during a job."""

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None
        # A call that timed out at the coordinator may still run when it is repeated.
        self._one_by_one = threading.Lock()
        self._blas = ThreadpoolController().select(user_api="blas")

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the owner's session when a job begins, and close it when the job ends."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            try:
                self._session = session_of(read_policy(_local(engine) / "owner.toml"))
            except DpcvxError as error:
                self.log_error(fl_ctx, str(error))
                return
            engine.register_aux_message_handler(_TOPIC, self._asked)
        elif event_type == EventType.END_RUN and self._session is not None:
            self._session.close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Return the code of an unknown task, since frames travel as messages and not as tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _asked(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        assert self._session is not None
        frame = request.get(_FRAME)
        reply = make_reply(ReturnCode.OK)
        # One BLAS thread, because the number of threads changes the rounding of results.
        with self._one_by_one, self._blas.limit(limits=1):
            if frame == GREETING:
                reply[_FRAME] = self._session.hello()
            else:
                reply[_FRAME] = self._session.reply(frame if isinstance(frame, bytes) else GREETING)
        return reply


class Rounds(Controller):
    """Controller that runs the plan in the server's ``local/model.py``, as the coordinator.

    Its log ``run.dpx`` and the shared variables, ``shared.npz``, are written beside the model.

    Parameters
    ----------
    timeout : float
        Seconds to wait for a site to connect, to answer, and to reconnect.
    """

    def __init__(self, timeout: float = 600.0) -> None:
        super().__init__()
        check_argument("Rounds", "timeout", timeout, POSITIVE)
        self._patience = float(timeout)

    def start_controller(self, fl_ctx: Any) -> None:
        """Do nothing: there is nothing to prepare."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Do nothing: there is nothing to clean up."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run the plan of the server's model with the sites as owners."""
        engine = fl_ctx.get_engine()
        folder = _local(engine)

        def ask(name: str, frame: bytes) -> bytes | None:
            if abort_signal.triggered:
                raise RuntimeError("the job was aborted. Submit it again: it resumes from run.dpx")
            request, site = Shareable(), stem(name)
            request[_FRAME] = frame
            with engine.new_context() as context:
                said = engine.send_aux_request([site], _TOPIC, request, self._patience, context)
            reply = (said or {}).get(site)
            if reply is None or reply.get_return_code(ReturnCode.OK) != ReturnCode.OK:
                return None
            return reply.get(_FRAME)

        executor = Remote(
            lambda names: RequestHub(names, ask, self._patience),
            lambda: CoordinatorLog(folder / "run.dpx"),
            lambda: uuid.uuid4().hex,
            lambda line: self.log_info(fl_ctx, line),
        )
        lead(folder / "model.py", executor, folder / "shared.npz")
