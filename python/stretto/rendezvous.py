"""How the ranks of a job learn the unique id that rank 0 made, where their launcher did not carry it.

**By a file**, when all ranks are on one host: rank 0 writes the id into a directory that only this user may
enter (`$XDG_RUNTIME_DIR/stretto`, or `/tmp/stretto-UID`, checked for owner and mode), under a name made from
the job. The file also says which process wrote it and when that process started, so what a killed job left
is seen to be stale, ignored, and removed by the next job. Who may read the file is settled by the operating
system, which no port can offer; that is why a file is taken wherever it can serve.

**By TCP**, when they are not: rank 0 answers at MASTER_ADDR. MASTER_PORT itself belongs to torchrun's own
store, so the port is derived from it and from the job, or is STRETTO_RENDEZVOUS_PORT. Both sides prove by
HMAC-SHA256 over fresh nonces that they know the job's key, and the id travels encrypted under it. The key is
STRETTO_RENDEZVOUS_SECRET and the job's name, which is itself a secret under `stretto run`. Without either the exchange
keeps jobs apart but does not keep a stranger on the network out, and says so in a warning: launchers hand no secret to
their ranks that we could use.

Every wait ends at the deadline, every length is fixed, and nothing is left behind: rank 0 removes the file
and stops answering as soon as all have joined.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import stat
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from stretto import failures
from stretto.errors import InvalidUsage, StrettoError, SystemCallError, Timeout
from stretto.launch import UNIQUE_ID_BYTES, Place
from stretto.patience import Patience

_NONCE = 16
_DIGEST = 32
_HELLO = struct.Struct(f"<8sI{_NONCE}s")
_MAGIC = b"stretto1"
_MAX_CLIENTS = 64
_CLIENT_SECONDS = 5.0


def by_file(place: Place) -> bool:
    """Whether this job's ranks meet by a file; by TCP otherwise."""
    choice = os.environ.get("STRETTO_RENDEZVOUS", "")
    if choice not in ("", "file", "tcp"):
        raise InvalidUsage(f"STRETTO_RENDEZVOUS={choice}: write file or tcp")
    return choice == "file" or (choice == "" and place.one_host)


@contextlib.contextmanager
def publish(place: Place, generation: int, unique_id: bytes) -> Iterator[None]:
    """Rank 0's side: hands the id to the other ranks for as long as the block lasts."""
    with _publish_file(place, generation, unique_id) if by_file(place) else _serve(place, generation, unique_id):
        yield


def learn(place: Place, generation: int, seconds: float) -> bytes:
    """The other ranks' side. Raises `Timeout` if rank 0 has not published within `seconds`."""
    deadline = time.monotonic() + seconds
    patience = Patience()
    pause = 0.001
    while True:
        found = _read_file(place, generation) if by_file(place) else _ask(place, generation)
        if found is not None:
            return found
        if time.monotonic() + pause > deadline:
            failures.current().note_loss()
            raise Timeout(f"{_who(place)} waited {seconds:g} s {_not_found(place)}")
        if patience.is_over():
            patience.tell(_who(place), f"looks {_not_found(place)}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _who(place: Place) -> str:
    return f"rank {place.rank} of {place.ranks} ({place.launcher})"


def _not_found(place: Place) -> str:
    where = str(_file_name(place, 0).parent) if by_file(place) else "{}:{}".format(*_address(place))
    return (
        f"at {where} for rank 0's unique "
        "id. Likely rank 0 did not start, failed before stretto.init(), or was given another job name or host; "
        "STRETTO_INIT_TIMEOUT sets the wait"
    )


def _key(place: Place, generation: int) -> bytes:
    secret = os.environ.get("STRETTO_RENDEZVOUS_SECRET", "")
    parts = [secret, place.launcher, place.job, str(place.ranks), str(generation)]
    return hashlib.sha256("\0".join(parts).encode()).digest()


# --- By a file. ---


def private_directory() -> Path:
    """The directory that only this user may enter, made if missing. Raises `SystemCallError` if it is not as
    it must be.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime, "stretto") if runtime and Path(runtime).is_dir() else Path(f"/tmp/stretto-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise SystemCallError(f"cannot make {folder}, where ranks leave their unique id: {error}") from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise SystemCallError(
            f"{folder} must be a directory of user {os.getuid()} that nobody else may enter (mode 0700), and is not: "
            "remove it, or set XDG_RUNTIME_DIR"
        )
    return folder


def _file_name(place: Place, generation: int) -> Path:
    return private_directory() / f"{_key(place, generation).hex()[:32]}.id"


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _parse(path: Path) -> bytes | None:
    """The id in the file, or None if it is missing, is not one of ours, or its writer is gone."""
    try:
        with path.open() as file:
            fields = file.read(1024).split()
    except (OSError, UnicodeDecodeError):
        return None
    if len(fields) != 4 or fields[0] != _MAGIC.decode() or not fields[1].isdigit():
        return None
    if _started(int(fields[1])) != fields[2]:
        return None
    try:
        unique_id = bytes.fromhex(fields[3])
    except ValueError:
        return None
    return unique_id if len(unique_id) == UNIQUE_ID_BYTES else None


def _read_file(place: Place, generation: int) -> bytes | None:
    return _parse(_file_name(place, generation))


def _sweep(folder: Path) -> None:
    """Removes what killed jobs left. A file that is being written has another suffix and is too young."""
    for path in folder.glob("*.id"):
        if _parse(path) is None:
            path.unlink(missing_ok=True)
    for path in folder.glob("*.new"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 60:
                path.unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    for attempt in range(5):
        private_directory()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if attempt == 4:
                raise
            continue  # Another job, just done, has removed the empty directory.
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        return


@contextlib.contextmanager
def _publish_file(place: Place, generation: int, unique_id: bytes) -> Iterator[None]:
    target = _file_name(place, generation)
    _sweep(target.parent)
    pid = os.getpid()
    draft = target.with_suffix(f".{pid}.new")
    text = f"{_MAGIC.decode()} {pid} {_started(pid)} {unique_id.hex()}\n"
    try:
        _write_private(draft, text)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SystemCallError(f"cannot write {target}, which tells the other ranks the unique id: {error}") from error
    try:
        yield
    finally:
        target.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            target.parent.rmdir()  # Only the last one out succeeds.


# --- By TCP. ---


def _address(place: Place) -> tuple[str, int]:
    if place.master is None:
        raise InvalidUsage(
            f"the ranks of this job ({place.launcher}) are on several hosts and MASTER_ADDR is not set: "
            "set it to the name of rank 0's host, on every rank"
        )
    host, port = place.master
    chosen = os.environ.get("STRETTO_RENDEZVOUS_PORT", "")
    if chosen:
        if not chosen.isdigit() or not 0 < int(chosen) < 65536:
            raise InvalidUsage(f"STRETTO_RENDEZVOUS_PORT={chosen}: not a port")
        return host, int(chosen)
    digest = hashlib.sha256(f"{place.launcher}\0{place.job}\0{port}".encode()).digest()
    return host, 20000 + int.from_bytes(digest[:4], "big") % 12000


def _prove(key: bytes, who: bytes, client: bytes, server: bytes, rank: int) -> bytes:
    return hmac.digest(key, b"|".join((who, client, server, str(rank).encode())), "sha256")


def _cover(key: bytes, client: bytes, server: bytes, text: bytes) -> bytes:
    """Adds a key stream that is used for nothing else, as both nonces are fresh; again, it takes it away."""
    blocks = len(text) // _DIGEST
    stream = b"".join(_prove(key, b"stream", client, server, block) for block in range(blocks))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError("closed before its time")
        data += more
    return data


def _ask(place: Place, generation: int) -> bytes | None:
    """One attempt to get the id from rank 0; None if it cannot be reached, or it is another job's."""
    key = _key(place, generation)
    mine = os.urandom(_NONCE)
    try:
        with socket.create_connection(_address(place), timeout=_CLIENT_SECONDS) as connection:
            connection.sendall(_HELLO.pack(_MAGIC, place.rank, mine))
            answer = _receive(connection, _NONCE + _DIGEST)
            theirs, proof = answer[:_NONCE], answer[_NONCE:]
            if not hmac.compare_digest(proof, _prove(key, b"server", mine, theirs, place.rank)):
                return None
            connection.sendall(_prove(key, b"client", mine, theirs, place.rank))
            covered = _receive(connection, UNIQUE_ID_BYTES)
            seal = _receive(connection, _DIGEST)
            if not hmac.compare_digest(seal, _prove(key, b"seal" + covered, mine, theirs, place.rank)):
                return None
            return _cover(key, mine, theirs, covered)
    except OSError:
        return None


def _answer(connection: socket.socket, place: Place, key: bytes, unique_id: bytes) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(_CLIENT_SECONDS)
        magic, rank, theirs = _HELLO.unpack(_receive(connection, _HELLO.size))
        if magic != _MAGIC or not 0 < rank < place.ranks:
            return
        mine = os.urandom(_NONCE)
        connection.sendall(mine + _prove(key, b"server", theirs, mine, rank))
        if not hmac.compare_digest(_receive(connection, _DIGEST), _prove(key, b"client", theirs, mine, rank)):
            return
        covered = _cover(key, theirs, mine, unique_id)
        connection.sendall(covered + _prove(key, b"seal" + covered, theirs, mine, rank))


@contextlib.contextmanager
def _serve(place: Place, generation: int, unique_id: bytes) -> Iterator[None]:
    address = _address(place)
    if not place.secret and not os.environ.get("STRETTO_RENDEZVOUS_SECRET") and not address[0].startswith("127."):
        warnings.warn(
            "STRETTO_RENDEZVOUS_SECRET is not set: whoever can reach this network and knows the job's name can learn "
            "its unique id",
            RuntimeWarning,
            stacklevel=4,
        )
    try:
        listener = socket.create_server(address, backlog=_MAX_CLIENTS)
    except OSError as error:
        raise SystemCallError(
            f"rank 0 cannot listen at {address[0]}:{address[1]} to hand out the unique id: {error}. "
            "STRETTO_RENDEZVOUS_PORT chooses another port"
        ) from error
    server = threading.Thread(
        target=_accept,
        args=(listener, place, _key(place, generation), unique_id),
        name="stretto-rendezvous",
        daemon=True,
    )
    server.start()
    try:
        yield
    finally:
        # Wakes the accept, which then sees that it is over.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join()


def _accept(listener: socket.socket, place: Place, key: bytes, unique_id: bytes) -> None:
    places = threading.BoundedSemaphore(_MAX_CLIENTS)

    def serve(connection: socket.socket) -> None:
        try:
            _answer(connection, place, key, unique_id)
        finally:
            places.release()

    while True:
        places.acquire()
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


__all__ = ["StrettoError", "by_file", "learn", "private_directory", "publish"]
