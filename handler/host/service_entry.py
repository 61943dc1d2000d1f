"""Where the host finds the service in its interpreters, and how long a load may take there."""

from __future__ import annotations

SERVICE_MODULE = "interpool.handler.backend.service"
SERVICE_FUNCTION = "WorkerService"
# The same, with traces.
TRACED_MODULE = "interpool.handler.backend.traced"
TRACED_FUNCTION = "TracedService"
STDIO_MODULE = "interpool.handler.backend.stdio"
# For a load that the host starts itself: what TorchServe gives its own if no setting says otherwise.
LOAD_LIMIT_S = 120.0
