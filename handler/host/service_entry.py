"""Names of the service that the host runs in its interpreters, and how long a load may take there."""

from __future__ import annotations

SERVICE_MODULE = "interpool.handler.backend.service"
SERVICE_FUNCTION = "WorkerService"
# The same, with traces.
TRACED_MODULE = "interpool.handler.backend.traced"
TRACED_FUNCTION = "TracedService"
STDIO_MODULE = "interpool.handler.backend.stdio"
# Seconds for a load that the host starts itself: TorchServe's default for its own loads.
LOAD_LIMIT_S = 120.0
