"""Questions to a host over its control socket."""

from __future__ import annotations

import threading
from pathlib import Path

from interpool.handler.frontend import shim
from interpool.handler.host import control


def test_a_question_to_a_host_that_accepts_no_connection_ends_in_time(tmp_path: Path) -> None:
    said: list[BaseException | bytes] = []

    def ask() -> None:
        try:
            said.append(control.ask(tmp_path, timeout_s=0.5))
        except OSError as error:
            said.append(error)

    with control.listen(tmp_path) as hung:
        hung.listen(0)  # then one connection fills the queue
        shim.connect_control(str(tmp_path)).close()
        asks = threading.Thread(target=ask, daemon=True)
        asks.start()
        asks.join(30)
        assert not asks.is_alive()
    assert [type(each) for each in said] == [TimeoutError]
