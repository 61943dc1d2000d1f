"""Starts the pool host with the server, so that interpreters are ready when the first model comes.

``interpool serve`` starts this program beside TorchServe: ``python -m interpool.handler.frontend.ahead
--launcher=PID``. The program waits for the frontend, which the launcher starts. Unless a shim was first, it
starts a host of the default pool as a shim does. Then it ends. The host ends with the frontend.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from interpool.handler.frontend import shim
from interpool.handler.torchserve import WORKER_ENVIRONMENT, running_frontend

PAUSE_S = 0.02
LOG_PATIENCE_S = 10.0  # for the frontend to make its log directory


def await_frontend(launcher: str) -> int | None:
    """The frontend's process id, once there is one; None if the launcher ended without starting it.

    Args:
        launcher: the directory below /proc of the process that starts it.
    """
    while os.path.exists(launcher):
        if frontend := running_frontend():
            return frontend
        time.sleep(PAUSE_S)
    return running_frontend()


def start_ahead(frontend: int, python: str) -> None:
    """Start the default pool's host, if there is none.

    Args:
        frontend: TorchServe's process id.
        python: the program that runs the host.

    Raises:
        shim.Refused: it cannot be started.
        OSError: the frontend has ended.
    """
    base = shim.runtime_base()
    shim.make_private(base)
    started = shim.process_start(frontend)
    runtime_dir = os.path.join(base, shim.instance_key(frontend, shim.DEFAULT_POOL))
    patience = time.monotonic() + LOG_PATIENCE_S
    while os.path.dirname(shim.log_path(frontend, runtime_dir, shim.DEFAULT_POOL)) == runtime_dir:
        if time.monotonic() > patience or not shim.process_start(frontend):
            break
        time.sleep(PAUSE_S)
    if shim.process_start(frontend) != started:
        return  # it has ended
    held = shim.lock(runtime_dir)
    try:
        shim.connect_control(runtime_dir).close()
    except OSError:
        environment = worker_environment(frontend)
        shim.start_host(frontend, runtime_dir, shim.DEFAULT_POOL, python, environment, "--ahead")
    finally:
        os.close(held)


def worker_environment(frontend: int) -> dict[str, str]:
    """The environment that a worker's shim gives a host if TorchServe's configuration does not change it.

    If the configuration changes it, the first worker's shim reports that to the host. The host then leaves
    its place to one that the shim starts.

    Args:
        frontend: TorchServe's process id.

    Raises:
        OSError: the frontend has ended.
    """
    environment = {**shim.started_with(frontend), **WORKER_ENVIRONMENT}
    paths = filter(os.path.isabs, environment.pop("PYTHONPATH", "").split(os.pathsep))  # see the shim
    if own := os.pathsep.join(paths):
        environment["PYTHONPATH"] = own
    return environment


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m interpool.handler.frontend.ahead")
    parser.add_argument("--launcher", required=True)
    options = parser.parse_args(arguments)
    frontend = await_frontend(f"/proc/{options.launcher}")
    if frontend is None:
        return 0
    try:
        start_ahead(frontend, sys.executable)
    except (shim.Refused, OSError) as error:
        # The first shim will try again, and TorchServe's model log will say why that failed.
        print(f"interpool: the pool host could not be started with the server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
