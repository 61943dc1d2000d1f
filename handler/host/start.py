"""Runs the pool host's process. The first shim that finds no host starts it, or it is started ahead of that.

The command is ``python -m interpool.handler.host.start --frontend=PID --runtime-dir=DIR --pool=NAME [--ahead]
[--lock=FD]``. It runs under the instance's lock, with a pipe as stdout, to which it writes ``listening``. A
host that replaces one that died has the lock itself, as no shim waits for it yet.

The first interpreter takes longest to start. So its start begins before the rest of the host is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.frontend import shim
from interpool.handler.host import log_lines
from interpool.handler.host.allocator import limit_arenas
from interpool.handler.host.interpreter_pool import Pool
from interpool.native.errors import InterpoolError
from interpool.native.upstream.cpython_private import run_exit_functions

if TYPE_CHECKING:
    from interpool.handler.config import HostSettings
    from interpool.handler.direct.beside import DirectAddress

# An interpreter that starts asks this Python for each private copy. By default, each time, it would wait 5 ms
# while this thread imports modules.
_SWITCH_INTERVAL_S = 0.0005

logger = logging.getLogger("interpool.host")


def main(arguments: list[str]) -> int:
    """Entry point of the host's process.

    Args:
        arguments: of the command line, without the program's name.

    Returns:
        The exit status. The process ends inside this function, except if another host listens already.
    """
    parser = argparse.ArgumentParser(prog="python -m interpool.handler.host.start")
    parser.add_argument("--frontend", type=int, required=True)
    parser.add_argument("--runtime-dir", type=Path, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--ahead", action="store_true", help="no worker needs it yet")
    parser.add_argument(
        "--lock", type=int, default=-1, help="descriptor of the instance's lock, to be let go of"
    )
    options = parser.parse_args(arguments)
    _close_inherited(but=options.lock)
    if options.lock >= 0:
        os.set_inheritable(options.lock, False)
        if _is_there(str(options.runtime_dir)):  # a shim has started a host first
            return 0
    log_lines.set_up()
    prepare_process()
    try:
        # Relative paths in the frontend's environment refer to the frontend's working directory.
        os.chdir(f"/proc/{options.frontend}/cwd")
        pool = Pool()
        pool.start()
        from interpool.handler.config import HostSettings
        from interpool.handler.host import rotated_log
        from interpool.handler.host.pool_host import PoolHost
        from interpool.handler.host.runtime_directory import remove_stale

        settings = HostSettings.of_environment()
        rotated_log.install(settings)
        remove_stale(options.runtime_dir.parent)
        address = _direct_address(settings, options.runtime_dir, options.frontend, options.pool)
        host = PoolHost(
            options.runtime_dir,
            options.pool,
            options.frontend,
            pool,
            ahead=options.ahead,
            settings=settings,
            lasting=address is not None,
            direct=address.describe if address is not None else None,
            trouble=(lambda: address.trouble) if address is not None else None,
            drain=address.drain if address is not None else None,
        )
    except (InterpoolError, OSError) as error:
        logger.error("%s", error)
        os._exit(1)  # nothing else can be ended while an interpreter starts
    logger.info("pool %r, pid %d, in %s", options.pool, os.getpid(), options.runtime_dir)
    os.write(1, b"listening\n")
    if options.lock >= 0:
        os.close(options.lock)
    # From here on stdout is the log too. The shim waits until the pipe is closed.
    os.dup2(2, 1)
    host.leave_on_sigterm()
    if address is not None:
        address.start()
    host.run()
    if address is not None:
        address.close()
    # As Python does first when it ends: interpreters run their exit functions, and models' files are removed.
    run_exit_functions()
    os._exit(0)


def _direct_address(
    settings: HostSettings, runtime_dir: Path, frontend: int, pool: str
) -> DirectAddress | None:
    """The address at which the default pool's host answers HTTP, if its settings name one."""
    address = settings.direct_address
    if not address or pool != shim.DEFAULT_POOL:
        return None
    from interpool.handler.direct.beside import DirectAddress

    return DirectAddress(address, runtime_dir, frontend, settings.direct_access_log)


def prepare_process() -> None:
    """Set the limits of a process that is to be a host, and the switch interval of its threads."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    raise_limit_of_files()
    limit_arenas()


def raise_limit_of_files() -> None:
    """Let this process have as many descriptors as its hard limit allows.

    A worker takes seven, so the usual soft limit would be enough for 140 workers only.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _close_inherited(but: int) -> None:
    """Close the descriptors of the shim that started this process; with one of them, it holds a directory."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != but:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))


def _is_there(runtime_dir: str) -> bool:
    try:
        shim.connect_control(runtime_dir).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
