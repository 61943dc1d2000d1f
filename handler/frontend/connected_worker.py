"""TorchServe's own worker for a connection that exists already, because the pool could not load its model.

The shim becomes this process after TorchServe has connected to the pool host and has sent its load command.
The command still waits in the socket. TorchServe's own code does everything from there on. The steps before
(listen, say that it started) have been done.
"""

import os
import sys

if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import logging
import socket

from ts.arg_parser import ArgParser
from ts.model_service_worker import TorchModelServiceWorker

# TorchServe's worker logs to the root logger, without names.
logger = logging.getLogger()


def main() -> int:
    """Serve the connection as ``ts/model_service_worker.py`` does; returns the exit status."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    connection = socket.socket(fileno=int(os.environ.pop("INTERPOOL_CONNECTION")))
    connection.setblocking(True)
    arguments = ArgParser.model_service_worker_args().parse_args()
    try:
        worker = TorchModelServiceWorker(
            arguments.sock_type,
            arguments.sock_name,
            arguments.host,
            arguments.port,
            arguments.metrics_config,
            False,
        )
        logger.info("Connection accepted: %s.", connection.getsockname())
        worker.handle_connection(connection)
    except Exception:
        logger.exception("Backend worker process died.")
    finally:
        if arguments.sock_type == "unix" and os.path.exists(arguments.sock_name):
            os.remove(arguments.sock_name)
    return 1


if __name__ == "__main__":
    sys.exit(main())
