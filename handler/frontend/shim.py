"""The stand-in that TorchServe starts for a worker, through the overlay's worker script.

TorchServe starts one such process per worker, reads its log lines, connects to the socket that its command
line names, and kills it. For a hermetic model this process is only a stand-in. It asks the pool host to
listen on that socket, hands over its own stdout and stderr, and waits. It does the same for an ordinary
model that the pool is to serve and can serve. For every other model it becomes TorchServe's stock worker,
also if the pool fails to load the model.

This module is one file and imports only the standard library, because it also runs under a model's own
virtual environment. Each worker pays in memory for what is imported here. So there is no ``socket``
(``_socket`` saves 1 MB), ``re``, ``subprocess`` or ``typing``, and ``json`` only if it is needed. The pool
host imports this module for what both sides must agree on.

Each section uses only those before it: TorchServe; variables; the overlay; the runtime directory; whether a
model is hermetic; the stock worker; the pool host; the stand-in.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import stat
import sys
import time


class Refused(Exception):
    """This worker cannot start; the message is for TorchServe's model log."""


class LeftToStock(Exception):
    """The pool does not serve this worker's model, and TorchServe's own worker does; the message says why.

    Attributes:
        connection: descriptor of TorchServe's connection, or -1 if it has not connected yet.
    """

    def __init__(self, why: str, connection: int = -1) -> None:
        super().__init__(why)
        self.connection = connection


# ---- TorchServe, as its workers meet it (in handler/torchserve.py for all others) ----------------

WORKER_SCRIPT = "model_service_worker.py"
MANIFEST = "MAR-INF/MANIFEST.json"  # in the model's directory
START_TIMEOUT_S = 110.0  # TorchServe gives a worker two minutes to say that it started


class Arguments:
    """TorchServe's worker arguments, as ``ts.arg_parser`` knows them."""

    def __init__(self, argv: list[str]) -> None:
        self.sock_type = self.sock_name = self.host = self.port = self.metrics_config = ""
        self.is_async = False
        rest = iter(argv)
        for word in rest:
            name, has_value, value = word.partition("=")
            if name == "--async":
                self.is_async = True
            elif name in ("--sock-type", "--sock-name", "--host", "--port", "--metrics-config"):
                setattr(self, name[2:].replace("-", "_"), value if has_value else next(rest, ""))

    def address(self) -> str:
        """``unix:PATH`` or ``tcp:HOST:PORT``, where TorchServe is going to connect.

        Raises:
            Refused: the arguments name no such place.
        """
        if self.sock_type == "unix" and self.sock_name:
            return f"unix:{self.sock_name}"
        if self.sock_type == "tcp" and self.port:
            return f"tcp:{self.host or '127.0.0.1'}:{self.port}"
        raise Refused(f"no socket to listen on in the worker's arguments: {sys.argv[1:]}")


def started_lines(pid: int, python_version: str) -> str:
    """The lines for which TorchServe waits in a worker's stdout.

    Args:
        pid: the worker's process id.
        python_version: the version of its Python, such as ``3.12.1``.
    """
    return f"[PID]{pid}\nTorch worker started.\nPython runtime: {python_version}\n"


def ts_log_line(text: str) -> str:
    """A line for stdout that stands in ts_log.log, as it begins like a metric and is none."""
    return f"[METRICS]interpool: {' '.join(text.split())}"


def model_directory(cwd: str) -> str:
    """The model's directory as TorchServe names it.

    A ``no-archive`` model is a symlink, and only the link's removal shows that the model is unregistered.
    TorchServe runs the worker in the model's directory, so the working directory does not show the link.
    TorchServe also puts the directory's unresolved path on PYTHONPATH.

    Args:
        cwd: the worker's working directory, without links.
    """
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if entry and entry != cwd and os.path.realpath(entry) == cwd:
            return entry
    return cwd


def process_stat(pid: int) -> tuple[bytes, list[bytes]]:
    """A process's name, and the fields behind it in its ``/proc/PID/stat``.

    Raises:
        OSError: there is no such process, or its file cannot be read.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        head, _, tail = file.read().rpartition(b")")
    return head.partition(b"(")[2], tail.split()


def frontend_pid() -> int:
    """The process id of the TorchServe frontend: the nearest ancestor named ``java``.

    Usually the parent; a CPU launcher may stand in between.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            name, fields = process_stat(pid)
        except OSError:
            break
        if name == b"java":
            return pid
        pid = int(fields[1])
    return os.getppid()


def started_with(pid: int) -> dict[str, str]:
    """The environment that a process was started with, without its own later changes.

    Raises:
        OSError: there is no such process, or its file cannot be read.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [variable.partition(b"=") for variable in file.read().split(b"\0")]
    # If two variables have the same name, the first one counts.
    return {os.fsdecode(name): os.fsdecode(value) for name, given, value in reversed(pairs) if given}


def python_path_of(pid: int, otherwise: str) -> list[str]:
    """The entries of the PYTHONPATH that a process was started with, which no archive can have changed.

    Args:
        pid: of the process.
        otherwise: the PYTHONPATH that counts if the process's environment cannot be read.

    Returns:
        The entries; none if the process has no PYTHONPATH.
    """
    try:
        path = started_with(pid).get("PYTHONPATH")
    except OSError:
        path = otherwise
    return [] if path is None else path.split(os.pathsep)


LOG_TO = "INTERPOOL_LOG_TO"


def server_output(frontend: int) -> str:
    """The path of TorchServe's own stdout; "" if another process cannot append to it.

    No other process can append to a socket, or to a file to which TorchServe does not append: TorchServe
    overwrites what others have written there.

    Args:
        frontend: TorchServe's process id.
    """
    path = f"/proc/{frontend}/fd/1"
    try:
        kind = os.stat(path).st_mode
        with open(f"/proc/{frontend}/fdinfo/1", encoding="ascii") as file:
            flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    except OSError:
        return ""
    appends = int(flags, 8) & os.O_APPEND
    return "" if stat.S_ISSOCK(kind) or (stat.S_ISREG(kind) and not appends) else path


def log_paths(frontend: int, runtime_dir: str, pool: str) -> list[str]:
    """Files that the host may log to, the best first.

    The order is: TorchServe's own output, if INTERPOOL_LOG_TO asks for it and it can be used; a file in
    TorchServe's log directory; a file in the runtime directory.

    Args:
        frontend: TorchServe's process id.
        runtime_dir: of the host.
        pool: its name.
    """
    name = f"interpool_host_{pool}.log"
    output = server_output(frontend) if os.environ.get(LOG_TO) == "stdout" else ""
    directory = os.path.join(f"/proc/{frontend}/cwd", os.environ.get("LOG_LOCATION", "logs"))
    files = [os.path.join(os.path.realpath(directory), name), os.path.join(runtime_dir, name)]
    return [output, *files] if output else files


def log_path(frontend: int, runtime_dir: str, pool: str) -> str:
    """The host's log: the first of ``log_paths`` that it may write to.

    Args:
        frontend: TorchServe's process id.
        runtime_dir: of the host.
        pool: its name.
    """
    *others, last = log_paths(frontend, runtime_dir, pool)
    for log in others:
        # An earlier log there may be another user's.
        if os.access(log if os.path.exists(log) else os.path.dirname(log), os.W_OK):
            return log
    return last


def open_log(frontend: int, runtime_dir: str, pool: str) -> tuple[str, int]:
    """Open the host's log: the first of ``log_paths`` that can be opened.

    Args:
        frontend: TorchServe's process id.
        runtime_dir: of the host.
        pool: its name.

    Returns:
        The log's path, and a descriptor that appends to it.

    Raises:
        Refused: none of these files can be written.
    """
    why = ""
    paths = log_paths(frontend, runtime_dir, pool)
    if os.environ.get(LOG_TO) == "stdout" and not server_output(frontend):
        why = "The log is here, as TorchServe's output is nothing that another process can append to\n"
    for path in paths:  # a disk may be full
        try:
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            failure = error
            why = f"The log is here, as {path} cannot be written: {error.strerror}\n"
        else:
            try:  # noqa: SIM105 - contextlib would be another import
                os.write(log, why.encode())
            except OSError:
                pass  # a full disk: it is for readers only
            return path, log
    raise Refused(f"the pool host's log {failure.filename} cannot be written: {failure.strerror}")


# ---- the environment's variables -----------------------------------------------------------------

# The variables that a user may set; HostSettings and OtherVariables describe each of them.
SETTINGS = frozenset(
    (
        "INTERPOOL_CACHE",
        "INTERPOOL_CACHE_DAYS",
        "INTERPOOL_CACHE_GB",
        "INTERPOOL_CALL_LIMIT_S",
        "INTERPOOL_DIRECT_ACCESS_LOG",
        "INTERPOOL_DIRECT_ADDRESS",
        "INTERPOOL_DRAIN_S",
        "INTERPOOL_FULL_IMPORT",
        "INTERPOOL_IDLE_EXIT_S",
        "INTERPOOL_IDLE_MODEL_S",
        "INTERPOOL_INTERPRETERS",
        "INTERPOOL_KEY_PASSWORD",
        "INTERPOOL_LIBPYTHON",
        "INTERPOOL_LOG",
        "INTERPOOL_LOG_FILES",
        "INTERPOOL_LOG_LEVEL",
        "INTERPOOL_LOG_MB",
        LOG_TO,
        "INTERPOOL_MAX_INTERPRETERS",
        "INTERPOOL_MEMORY_MB",
        "INTERPOOL_METRICS_ADDRESS",
        "INTERPOOL_ORDINARY_ARCHIVES",
        "INTERPOOL_PREPARED",
        "INTERPOOL_RUNTIME_DIR",
        "INTERPOOL_SELF_TEST",
        "INTERPOOL_SHARE",
        "INTERPOOL_SIGNATURE_KEYS",
        "INTERPOOL_START_AHEAD",
        "INTERPOOL_STOCK_ARCHIVES",
        "INTERPOOL_UNTESTED",
        "INTERPOOL_VERIFY",
    )
)
# Variables that interpool's processes pass to each other, and variables of a checkout's scripts.
OTHER_VARIABLES = frozenset(
    (
        "INTERPOOL_CONNECTION",
        "INTERPOOL_SUCCESSOR",
        "INTERPOOL_PYTHON",
        "INTERPOOL_RESULTS",
        "INTERPOOL_SERVING_ENVIRONMENTS",
        "INTERPOOL_TORCH",
    )
)
_OF_TESTS = "INTERPOOL_TEST_"


def unknown_variables(environment: dict[str, str]) -> str:
    """Text on interpool's variables that do not exist; "" if there are none.

    If a variable that is to protect a server is misspelled, it protects nothing.

    Args:
        environment: all variables of a process.
    """
    unknown = sorted(
        name
        for name in environment
        if name.startswith("INTERPOOL_")
        and name not in SETTINGS
        and name not in OTHER_VARIABLES
        and not name.startswith(_OF_TESTS)
        and not _is_of_a_service(name)
    )
    if not unknown:
        return ""
    import difflib  # not above, because almost no worker needs it

    said = []
    for name in unknown:
        nearest = difflib.get_close_matches(name, sorted(SETTINGS), 1)
        said.append(f"{name} (is it {nearest[0]}?)" if nearest else name)
    return (
        f"interpool knows no variable {', '.join(said)}. Correct the name, or unset it; "
        "docs/settings.md lists all that there are"
    )


def _is_of_a_service(name: str) -> bool:
    """Whether Kubernetes sets it in each pod, for a service whose name begins with ``interpool``."""
    if name.endswith(("_SERVICE_HOST", "_PORT")) or "_SERVICE_PORT" in name:
        return True
    port, _, protocol = name.partition("_PORT_")[2].partition("_")
    return port.isdecimal() and protocol.partition("_")[0] in ("TCP", "UDP", "SCTP")


# ---- the overlay ---------------------------------------------------------------------------------

OVERLAY_RECORD = "interpool-overlay"


def overlay_record(home: str) -> dict[str, str]:
    """The record of the installation, which ``interpool.handler.frontend.overlay`` has written.

    Args:
        home: the overlay.

    Raises:
        OSError: the overlay has no record, or it cannot be read.
    """
    record = {}
    with open(os.path.join(home, OVERLAY_RECORD), encoding="utf-8") as file:
        for line in file:
            name, _, value = line.rstrip("\n").partition("=")
            record[name] = value
    return record


# ---- the runtime directory, where the shims and the host of a pool meet ---------------------------

PROTOCOL = "2"  # the version of their messages: see host/control.py
MESSAGE_LIMIT = 65536  # bytes of a message there
FOLLOW_REQUEST = b"follow"  # by which the direct address asks to hear of workers
ARGUMENT_SEPARATOR = "\x1f"


def runtime_base() -> str:
    """The directory that holds one private directory per TorchServe instance and pool.

    Raises:
        Refused: INTERPOOL_RUNTIME_DIR is no absolute path.
    """
    chosen = os.environ.get("INTERPOOL_RUNTIME_DIR")
    if chosen:
        # Shims run in their models' directories, the server and its operator elsewhere.
        if not os.path.isabs(chosen):
            raise Refused(f"INTERPOOL_RUNTIME_DIR must be an absolute path, not {chosen!r}")
        return os.path.normpath(chosen)
    # Not below XDG_RUNTIME_DIR, which is removed with a login session; the server may outlive that.
    return f"/tmp/interpool-{os.getuid()}"


def make_private(path: str) -> None:
    """Create the directory ``path`` with mode 0700, or check that it is this user's and has that mode.

    Raises:
        Refused: it cannot be created, or ``check_private`` refuses it.
    """
    try:
        while True:
            # The parent may be the base, and may be gone. makedirs gives its mode to the last one only.
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.makedirs(path, mode=0o700, exist_ok=True)
            try:
                found = os.stat(path, follow_symlinks=False)
                break
            except FileNotFoundError:
                continue  # a host that leaves has just removed it
    except OSError as error:
        raise Refused(f"cannot create the runtime directory {path}: {error.strerror}") from None
    check_private(path, found)


def check_private(path: str, found: os.stat_result) -> None:
    """Raise Refused unless the runtime directory is this user's alone, and this user can use it.

    Args:
        path: its name, for the message.
        found: its state; of the link itself if it is one.

    Raises:
        Refused: it is another user's, has another mode than 0700, or is no directory.
    """
    if found.st_uid != os.getuid() or found.st_mode & 0o777 != 0o700 or not stat.S_ISDIR(found.st_mode):
        raise Refused(
            f"the runtime directory {path} must be a directory of this user with mode 0700. "
            "Set INTERPOOL_RUNTIME_DIR to one, or to a path that does not exist yet"
        )


def process_start(pid: int) -> str:
    """When process ``pid`` started, in clock ticks since boot; "" if there is no such process."""
    try:
        return process_stat(pid)[1][19].decode()
    except (OSError, IndexError):
        return ""


def system_key() -> str:
    """The name of the running system and the PID namespace; only in both does a process id mean one process.

    Raises:
        OSError: /proc cannot be read.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read(8)
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino:x}"


def instance_key(frontend_pid: int, pool: str) -> str:
    """The name of one pool of one TorchServe: its process id, its start, the system, and the pool.

    Args:
        frontend_pid: TorchServe's process id.
        pool: the pool's name.

    Raises:
        Refused: TorchServe has ended, or /proc cannot be read.
    """
    start = process_start(frontend_pid)
    if not start:
        raise Refused(f"TorchServe (process {frontend_pid}) has ended: start it again")
    try:
        return f"{frontend_pid}-{start}-{system_key()}-{pool}"
    except OSError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}; mount /proc") from None


def hold(path: str) -> int:
    """A descriptor that holds a directory, or a file: while it is open, no process of interpool removes that.

    The descriptor has a shared lock, which every container that shares the directory sees. The lock ends with
    the last process that has the descriptor, even if that is killed. When systemd cleans /tmp, it respects
    the lock of a directory.

    Raises:
        OSError: it does not exist or cannot be opened, or its file system has no locks.
    """
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # a process that removes it has LOCK_EX meanwhile
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def hold_extracted(model_dir: str) -> None:
    """Hold the folder where TorchServe extracts models, for this process and the program that it becomes."""
    try:  # noqa: SIM105 - contextlib would be another import
        os.set_inheritable(hold(os.path.dirname(model_dir)), True)
    except OSError:
        pass  # the folder is gone, or its file system has no locks, and then nothing is removed from it


def lock(runtime_dir: str) -> int:
    """Take the instance's lock, and return its descriptor. The caller closes it to release the lock.

    A process removes the directory only under this lock. So a lock on a file that is gone is no lock, and
    this function tries again.

    Raises:
        Refused: the runtime directory cannot be used.
        OSError: the lock's file cannot be opened.
    """
    path = os.path.join(runtime_dir, "lock")
    while True:
        make_private(runtime_dir)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def connect_control(runtime_dir: str, timeout_s: float | None = None) -> _socket.socket:
    """Connect to the control socket in ``runtime_dir``.

    The path goes through a descriptor of the directory, because it may be 107 bytes long at most.

    Args:
        runtime_dir: the host's runtime directory.
        timeout_s: the connection's timeout, in seconds; None: it has none, and while the host's queue of
            connections is full, this function waits.

    Raises:
        BlockingIOError: the host's queue of connections is full, and there is a timeout.
        OSError: no process listens there.
    """
    directory = os.open(runtime_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        control.settimeout(timeout_s)
        try:
            control.connect(f"/proc/self/fd/{directory}/control")
        except OSError:
            control.close()
            raise
        return control
    finally:
        os.close(directory)


def file_identity(path: str) -> tuple[int, int] | None:
    """Inode number and change time of a file, which differ from those of the next file of this name.

    The inode number alone may be the same.

    Returns:
        None if the file cannot be looked at.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


# ---- is the model hermetic? ----------------------------------------------------------------------

HANDLER_STEM = "interpool_handler"
TEXT_LIMIT = 1 << 18  # bytes of a file that are read here; a larger file is refused elsewhere


def is_hermetic(model_dir: str) -> bool:
    """Whether the model in ``model_dir`` names interpool's handler file in its manifest.

    Raises:
        Refused: the manifest cannot be read.
    """
    try:
        with open(os.path.join(model_dir, MANIFEST), "rb") as file:
            manifest = b"".join(file.read(TEXT_LIMIT).split())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Refused(
            f"{error.filename} cannot be read: {error.strerror}; make it readable for the server"
        ) from error
    _, _, named = manifest.partition(b'"handler":"' + HANDLER_STEM.encode())
    # The name must end here, or be followed by that of a function in the file.
    return named.removeprefix(b".py")[:1] in (b'"', b":")


def is_pooled(cwd: str, environment: dict[str, str], record: dict[str, str]) -> bool:
    """Whether the pool is to serve the ordinary model in ``cwd``, if it can.

    Args:
        cwd: the model's directory.
        environment: this process's variables.
        record: of the overlay.

    Raises:
        Refused: INTERPOOL_ORDINARY_ARCHIVES is neither pool nor stock.
        OSError: as for ``named_pool``.
    """
    wish = environment.get("INTERPOOL_ORDINARY_ARCHIVES", "") or "stock"
    if wish not in ("pool", "stock"):
        raise Refused(f"INTERPOOL_ORDINARY_ARCHIVES must be pool or stock, not {wish!r}")
    return wish == "pool" or bool(named_pool(cwd, record))


# ---- the stock worker ----------------------------------------------------------------------------

CONNECTION_VARIABLE = "INTERPOOL_CONNECTION"  # in connected_worker.py as well


def require_isolation(environment: dict[str, str]) -> None:
    """Refuse a worker if signatures are asked for and files of the archive may have run before.

    The refusal does not stop this archive's files, but the operator learns of it.

    Args:
        environment: this process's variables.

    Raises:
        Refused: signatures are asked for, and this Python is not isolated.
    """
    if "INTERPOOL_SIGNATURE_KEYS" in environment and not sys.flags.isolated:
        raise Refused(
            "INTERPOOL_SIGNATURE_KEYS asks for signatures, but TorchServe starts its workers so that they "
            "import what they find in an archive before anything of it was checked. Start it with "
            "`interpool serve` [isolation]"
        )


def refuse_stock(environment: dict[str, str]) -> None:
    """Refuse an archive that is not hermetic, if the server must not serve such archives.

    A server that asks for signatures refuses them by default, because nothing in them can be checked.

    Args:
        environment: this process's variables.

    Raises:
        Refused: such archives are refused, or INTERPOOL_STOCK_ARCHIVES is neither allow nor refuse.
    """
    wish = environment.get("INTERPOOL_STOCK_ARCHIVES", "")
    if wish == "allow" or not (wish or "INTERPOOL_SIGNATURE_KEYS" in environment):
        return
    if wish not in ("", "refuse"):
        raise Refused(f"INTERPOOL_STOCK_ARCHIVES must be allow or refuse, not {wish!r}")
    why = (
        "INTERPOOL_STOCK_ARCHIVES=refuse"
        if wish
        else "INTERPOOL_SIGNATURE_KEYS asks for signatures, which such archives cannot have"
    )
    raise Refused(
        f"this model is refused: its archive is not hermetic (its handler is not {HANDLER_STEM}.py), and "
        f"{why}. Pack it with `interpool pack` and sign it, or set INTERPOOL_STOCK_ARCHIVES=allow "
        "[stock-archive]"
    )


def become_stock_worker(home: str, record: dict[str, str], connection: int = -1) -> None:
    """Replace this process by TorchServe's own worker, with the same arguments.

    The worker gets the environment that an unchanged TorchServe gives it. There the server's home lies in
    site-packages, and TorchServe then leaves it out of PYTHONPATH.

    Args:
        home: the overlay.
        record: of the overlay.
        connection: descriptor of TorchServe's connection; -1 if it has not connected yet.

    Raises:
        OSError: the worker's program cannot be run.
    """
    script = os.path.join(record["ts"], WORKER_SCRIPT)
    if connection >= 0:
        os.environ[CONNECTION_VARIABLE] = str(connection)
        os.set_inheritable(connection, True)
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "connected_worker.py")
    command = list(sys.orig_argv)
    at = command.index(sys.argv[0])
    # Without -I, which the overlay's launcher has added.
    command = [*(word for word in command[:at] if word != "-I"), script, *command[at + 1 :]]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = environment.get("PYTHONPATH", "").removesuffix(home)
    os.execve(sys.executable, command, environment)


# ---- the pool host -------------------------------------------------------------------------------

DEFAULT_POOL = "default"


def host_environment(record: dict[str, str]) -> dict[str, str]:
    """This process's environment, without the parts that TorchServe has added for this one worker.

    TorchServe adds the model's directory to PYTHONPATH, behind the server's own entries. Before them, it adds
    what the archive's manifest says of its handler. Relative entries are left out, because they are relative
    to the model's directory.

    Args:
        record: of the overlay.
    """
    environment = dict(os.environ)
    model = os.getcwd()
    own = [
        entry
        for entry in python_path_of(frontend_pid(), environment.get("PYTHONPATH", ""))
        if os.path.isabs(entry)
        and entry != record["home"]
        and os.path.commonpath([os.path.realpath(entry), model]) != model
    ]
    environment["PYTHONPATH"] = os.pathsep.join(own)
    if not own:
        del environment["PYTHONPATH"]
    return environment


def configuration_file(model_dir: str) -> str:
    """The path of the configuration file that the manifest names; "" if it names none or cannot be read."""
    try:
        with open(os.path.join(model_dir, MANIFEST), "rb") as file:
            manifest = file.read(TEXT_LIMIT)
        if b"configFile" not in manifest:
            return ""
        import json  # not above, because many workers do not need it

        return os.path.join(model_dir, json.loads(manifest)["model"]["configFile"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""  # the host says what is wrong with it


def named_pool(model_dir: str, record: dict[str, str]) -> str:
    """The pool that the model's configuration names; "" if it names none.

    Settings that are refused name no pool, because any host can say why it refuses them. A file that cannot
    be read names none either. This process does not parse YAML. If the file could name a pool, it runs the
    host's Python to find out.

    Args:
        model_dir: the model's directory.
        record: of the overlay.

    Raises:
        Refused: the host's Python failed.
        OSError: the host's Python cannot be run.
    """
    path = configuration_file(model_dir)
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            text = file.read(TEXT_LIMIT)
    except OSError:
        return ""
    settings = text.replace(b"interpool", b"")
    if b"interpool" not in text or not (b"pool" in settings or b"isolation" in settings):
        return ""
    read_end, write_end = os.pipe()
    pid = os.posix_spawn(
        record["python"],
        # -P: this is the model's directory, and no file in it may become a module of the program.
        [record["python"], "-P", "-m", "interpool.handler.config", model_dir],
        host_environment(record),
        file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)],
    )
    os.close(write_end)
    with open(read_end, "rb") as output:
        # It prints one line, but a site's own modules may print before it, at its start.
        name = output.read().removesuffix(b"\n").rpartition(b"\n")[2].decode()
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise Refused(
            f"{path} may name a pool, and the program that reads it failed with status {status}; "
            "the lines above may say why"
        )
    return name


def host_command(frontend: int, runtime_dir: str, pool: str, python: str, *options: str) -> list[str]:
    """The command line that starts the pool's host.

    Args:
        frontend: TorchServe's process id.
        runtime_dir: of the host.
        pool: its name.
        python: the program that runs the host.
        options: further options of ``interpool.handler.host.start``.
    """
    return [
        python,
        "-P",
        "-m",
        "interpool.handler.host.start",
        f"--frontend={frontend}",
        f"--runtime-dir={runtime_dir}",
        f"--pool={pool}",
        *options,
    ]


def start_host(
    frontend: int, runtime_dir: str, pool: str, python: str, environment: dict[str, str], *options: str
) -> None:
    """Start the pool host, in its own session, and wait until it listens. The caller must hold the lock.

    Args:
        frontend: TorchServe's process id.
        runtime_dir: of the host.
        pool: its name.
        python: the program that runs the host.
        environment: of the host.
        options: further options of ``interpool.handler.host.start``.

    Raises:
        Refused: the log cannot be written, the program cannot be run, or the host ended before it listened.
        OSError: this process has no descriptor left.
    """
    log, log_file = open_log(frontend, runtime_dir, pool)
    log_start = os.fstat(log_file).st_size
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    read_end, write_end = os.pipe()
    try:
        os.posix_spawn(
            python,
            host_command(frontend, runtime_dir, pool, python, *options),
            environment,
            file_actions=[
                # The order matters. The host prints "listening" to stdout, and then replaces its stdout
                # by its log. If the pipe ends before that, the host has died.
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, write_end, 1),
                (os.POSIX_SPAWN_DUP2, log_file, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise Refused(f"cannot start the pool host with {python}: {error.strerror}") from None
    finally:
        os.close(write_end)
        os.close(null)
        os.close(log_file)
    with open(read_end, "rb") as pipe:
        if pipe.read().endswith(b"listening\n"):  # a site's own modules may print at a Python's start
            return
    if not os.path.isfile(log):
        raise Refused("the pool host did not start; what TorchServe prints says why")
    with open(log, "rb") as file:
        file.seek(log_start)
        said = file.read().decode(errors="replace").strip()
    raise Refused(f"the pool host did not start; its log {log} says:\n{said}")


SUCCESSOR_VARIABLE = "INTERPOOL_SUCCESSOR"  # in standby.cc as well
SUCCESSOR_LOCK = 3  # the number of the lock's descriptor in the successor; in standby.cc as well


def successor_environment(frontend: int, pool: str, record: dict[str, str]) -> dict[str, str]:
    """The environment of a program that stands by: the host's, and how the next host is started.

    The first program that sees the end of its host starts the next one. If a host dies, TorchServe restarts
    its workers after a second at the earliest. By then the next host's first interpreter can be ready.

    Args:
        frontend: TorchServe's process id.
        pool: the pool's name.
        record: of the overlay.

    Raises:
        Refused: INTERPOOL_RUNTIME_DIR is no absolute path, TorchServe has ended, or /proc cannot be read.
    """
    runtime_dir = os.path.join(runtime_base(), instance_key(frontend, pool))
    how = [
        os.path.join(runtime_dir, "lock"),
        log_path(frontend, runtime_dir, pool),
        *host_command(frontend, runtime_dir, pool, record["python"], f"--lock={SUCCESSOR_LOCK}"),
    ]
    return {**host_environment(record), SUCCESSOR_VARIABLE: ARGUMENT_SEPARATOR.join(how)}


def reach_host(frontend: int, pool: str, record: dict[str, str]) -> _socket.socket:
    """Connect to the pool's host; start one first if there is none.

    This function takes the instance's lock while it starts a host, and connects once more under the lock,
    because another process may have started one.

    Args:
        frontend: TorchServe's process id.
        pool: the pool's name.
        record: of the overlay.

    Raises:
        Refused: the runtime directory cannot be used, TorchServe has ended, or no host can be started.
        OSError: the lock's file cannot be opened, or the host that was started takes no connection.
    """
    base = runtime_base()
    make_private(base)
    runtime_dir = os.path.join(base, instance_key(frontend, pool))
    try:
        return connect_control(runtime_dir)
    except OSError:
        pass
    held = lock(runtime_dir)
    try:
        try:
            return connect_control(runtime_dir)
        except OSError:
            start_host(frontend, runtime_dir, pool, record["python"], host_environment(record))
            return connect_control(runtime_dir)
    finally:
        os.close(held)


# ---- standing in for a worker --------------------------------------------------------------------

FIONREAD = 0x541B  # asks for the bytes that wait in a pipe; in termios, too, which would be another import
READ_PATIENCE_S = 5.0


def receive(control: _socket.socket) -> bytes:
    """The host's next message; b"" at the end.

    If the host has closed the connection, its message comes only after ConnectionResetError.

    Raises:
        ConnectionResetError: the host has closed the connection without a message.
        TimeoutError: no message has come within the connection's timeout.
    """
    try:
        return control.recv(MESSAGE_LIMIT)
    except ConnectionResetError:
        return control.recv(MESSAGE_LIMIT)


def register(control: _socket.socket, fields: dict[str, str]) -> str:
    """Ask the host to listen on this worker's socket.

    Args:
        control: the connection to the host; it has a timeout of START_TIMEOUT_S afterwards.
        fields: of the registration, see host/control.py.

    Returns:
        "" if the host listens; "again" if it left before it took the request; "pool" and a name if another
        pool is to serve the worker.

    Raises:
        Refused: the host refuses the worker, or does not answer in time.
        LeftToStock: TorchServe's own worker is to serve the model.
    """
    message = "\0".join(["register", *(f"{name}={value}" for name, value in fields.items())])
    descriptors = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (1, 2))
    control.settimeout(START_TIMEOUT_S)
    try:
        try:  # noqa: SIM105 - contextlib would be another import
            control.sendmsg([message.encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        except (BrokenPipeError, ConnectionResetError):
            pass  # a host without a descriptor to spare closes at once, and has said why
        kind, _, text = receive(control).decode().partition("\0")
    except TimeoutError:
        raise Refused(f"the pool host did not answer within {START_TIMEOUT_S:.0f} s; see its log") from None
    except ConnectionResetError:
        return "again"
    if kind == "refused":
        raise Refused(text)
    if kind == "stock":
        raise LeftToStock(text)
    if kind == "pool":
        return f"pool {text}"
    return "" if kind == "ready" else "again"


def require_one_process(arguments: Arguments) -> None:
    """Refuse a worker that is not one synchronous process.

    Args:
        arguments: TorchServe's for the worker.

    Raises:
        Refused: TorchServe asks for asynchronous communication, or for several processes.
    """
    if arguments.is_async:
        raise Refused(
            "asyncCommunication is not supported in a pool (TorchServe 0.12 loses requests in that mode): "
            "remove it from the model's configuration"
        )
    if int(os.environ.get("WORLD_SIZE", "0")) > 1:
        raise Refused("a pool does not serve what torchrun starts: remove parallelType")


def serve_from_pool(arguments: Arguments, cwd: str, record: dict[str, str], hermetic: bool) -> int:
    """Stand in for a worker whose model the pool host serves; returns the exit status.

    The host tries an ordinary model when TorchServe has connected. Until then it may leave the model to this
    process.

    Args:
        arguments: TorchServe's for the worker.
        cwd: the model's directory.
        record: of the overlay.
        hermetic: whether the model is hermetic.

    Raises:
        LeftToStock: the host does not serve the model, because it cannot share a process.
        Refused: the host cannot be reached, or refuses the worker.
        OSError: as for ``named_pool`` and ``reach_host``.
    """
    address = arguments.address()
    model_dir = model_directory(cwd)
    frontend = frontend_pid()
    pool = named_pool(cwd, record) or DEFAULT_POOL
    fields = {
        "protocol": PROTOCOL,
        "pid": str(os.getpid()),
        "address": address,
        "model_dir": model_dir,
        "metrics_config": arguments.metrics_config,
        "arguments": ARGUMENT_SEPARATOR.join([os.path.join(record["ts"], WORKER_SCRIPT), *sys.argv[1:]]),
    }
    for _ in range(10):
        control = reach_host(frontend, pool, record)
        answer = register(control, fields)
        if not answer:
            break
        control.close()
        if answer.startswith("pool "):
            pool = answer.removeprefix("pool ")
        else:
            time.sleep(0.05)
    else:
        raise Refused("the pool host exited ten times before it accepted this worker; see its log")

    version = ".".join(map(str, sys.version_info[:3]))
    os.write(1, started_lines(os.getpid(), version).encode())
    control.settimeout(None)
    path = address.removeprefix("unix:")
    mine = file_identity(path)
    environment = successor_environment(frontend, pool, record)
    if hermetic:
        stand_by(control, path, mine, record, environment)
    return wait_for_end(control, path, mine, record, environment)


def stand_by(
    control: _socket.socket,
    path: str,
    mine: tuple[int, int] | None,
    record: dict[str, str],
    environment: dict[str, str],
) -> None:
    """Become a program that does what ``wait_for_end`` does, in a tenth of a Python's memory.

    It keeps this process's arguments, so that it looks like the process that TorchServe started. If its host
    dies, it starts the next one (``successor_environment``). This function returns only if the program cannot
    be run.

    Args:
        control: the connection to the host.
        path: of the socket that the host listens on.
        mine: that file's identity; None if there is none.
        record: of the overlay; ``standby`` is the program.
        environment: of the program.
    """
    inode, changed = mine or (0, 0)
    task = f"{control.fileno()}:{inode}:{changed}:{path}"
    os.set_inheritable(control.fileno(), True)
    try:
        os.execve(record.get("standby", ""), [*sys.orig_argv, task], environment)
    except OSError:
        os.set_inheritable(control.fileno(), False)


def wait_for_end(
    control: _socket.socket,
    path: str,
    mine: tuple[int, int] | None,
    record: dict[str, str],
    environment: dict[str, str],
) -> int:
    """Live as long as the host serves this worker; returns the exit status.

    Args:
        control: the connection to the host.
        path: of the socket that the host listens on.
        mine: that file's identity; None if there is none.
        record: of the overlay.
        environment: of the program that stands by, once the pool has loaded its model.

    Raises:
        LeftToStock: the pool could not load its model.
    """
    last = "served"
    while last == "served":  # the next message that is not this one is the end
        try:
            message, ancillary, _flags, _address = control.recvmsg(MESSAGE_LIMIT, _socket.CMSG_SPACE(4))
        except OSError:
            message, ancillary = b"", []
        last, _, text = message.decode().partition("\0")
        for _level, _kind, descriptors in ancillary:
            raise LeftToStock(text, int.from_bytes(descriptors[:4], sys.byteorder))
        if last == "served":
            stand_by(control, path, mine, record, environment)
    if last:  # "bye": an end that is not a failure
        return 0
    # By now TorchServe may have given the name to the next worker.
    if mine and file_identity(path) == mine:
        os.unlink(path)
    complain("the pool host is gone; TorchServe will restart this worker.")
    return 1


def complain(text: str) -> None:
    """Write what went wrong to the model log, and to TorchServe's own, before this process ends.

    Once a worker's stdout has ended, TorchServe does not read its stderr any more. So this function first
    waits until TorchServe has read stderr.
    """
    os.write(2, f"interpool: {text}\n".encode())
    await_reader(2)
    os.write(1, f"{ts_log_line(text)}\n".encode())


def await_reader(descriptor: int) -> None:
    """Wait until a pipe is empty, READ_PATIENCE_S at most; return at once for other files."""
    patience = time.monotonic() + READ_PATIENCE_S
    try:
        while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < patience:
            if not int.from_bytes(fcntl.ioctl(descriptor, FIONREAD, bytes(4)), sys.byteorder):
                break
            time.sleep(0.01)
    except OSError:
        pass  # the wait only helps the reader


def main() -> int:
    """Entry point of the overlay's ``ts/model_service_worker.py``; returns the exit status."""
    home = os.path.dirname(os.path.abspath(__file__))
    record = {"home": home, **overlay_record(home)}
    cwd = os.getcwd()
    environment = dict(os.environ)
    arguments = Arguments(sys.argv[1:])
    hermetic = False
    hold_extracted(model_directory(cwd))
    try:
        if wrong := unknown_variables(environment):
            raise Refused(wrong)
        require_isolation(environment)
        hermetic = is_hermetic(cwd)
        if not hermetic:
            refuse_stock(environment)
            if not is_pooled(cwd, environment, record):
                become_stock_worker(home, record)
        try:
            require_one_process(arguments)
        except Refused as error:
            if hermetic:
                raise
            raise LeftToStock(str(error)) from None
        return serve_from_pool(arguments, cwd, record, hermetic)
    except LeftToStock as reason:
        os.write(2, f"interpool: served by a worker process of its own: {reason}\n".encode())
        become_stock_worker(home, record, reason.connection)
        return 1
    except Refused as error:
        complain(str(error))
        return 1
    except OSError as error:  # a full disk, or no memory
        where = f"{error.filename}: " if error.filename else ""
        complain(f"this worker cannot start: {where}{error.strerror or error}. TorchServe will try it again")
        return 1
