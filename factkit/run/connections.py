"""HTTP clients with bounds on time and size, and with checked addresses.

The environment's proxy is used only for https, which it can't read, and never for this
machine.
"""

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx

from factkit.run.params import ParamError

BODY_BYTES = 64_000_000  # of a request or a reply; a larger one is refused
# whose last four bytes are an IPv4 address: compatible, translated and NAT64
EMBEDDED = tuple(
    ipaddress.ip_network(network)
    for network in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)


class AddressError(Exception):
    """A host has no address, or one that is not of the public internet."""


def uses_proxy(url: str | httpx.URL) -> bool:
    """Whether a request to this address may take the environment's proxy.

    Over http the proxy would read keys and questions, and an address of this machine
    is another one for it.
    """
    host = httpx.URL(url).host
    with suppress(ValueError):
        return httpx.URL(url).scheme == "https" and not ip_address(host).is_loopback
    local = host == "localhost" or host.endswith(".localhost")
    return httpx.URL(url).scheme == "https" and not local


def client(
    url: str, seconds: float, public: bool = False, **options: Any
) -> httpx.Client:
    """A client whose exchanges take `seconds` at most, from the first connection to the
    last byte, and whose replies are neither compressed nor above BODY_BYTES.

    url: where it goes, which decides on the proxy. public: connect to addresses of the
    public internet alone, without a proxy; AddressError otherwise. options: of
    httpx.Client. Raises ParamError if the environment names a proxy that can't be used.
    """
    deadline = _Deadline(seconds, public)
    hooks = {"request": [deadline.start], "response": [_bound_reply]}
    try:
        made = httpx.Client(
            event_hooks=hooks,
            timeout=seconds,
            trust_env=not public and uses_proxy(url),
            **options,
        )
    except ImportError as error:  # a SOCKS proxy
        raise ParamError(f"the proxy in the environment: {error}") from None
    made.headers["Accept-Encoding"] = "identity"
    for transport in (made._transport, *made._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = deadline
    return made


def _bound_reply(response: httpx.Response) -> None:
    """Refuse a compressed reply, since a small one may hold gigabytes, and bound the
    size of another one while it is read. Raises httpx.RemoteProtocolError."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("the reply is compressed")
    response.stream = _Bounded(response.stream)


class _Bounded(httpx.SyncByteStream):
    """A reply's bytes; httpx.RemoteProtocolError above BODY_BYTES."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        for part in self.stream:
            received += len(part)
            if received > BODY_BYTES:
                why = f"the reply has more than {BODY_BYTES} bytes"
                raise httpx.RemoteProtocolError(why)
            yield part

    def close(self) -> None:
        self.stream.close()


class _Deadline(httpcore.NetworkBackend):
    """Connections on which each thread's exchange ends after `seconds`.

    httpcore limits each read alone, so a reply sent byte by byte would never time out.
    public: the address that was checked is the one connected to;
    a second look-up could give another one.
    """

    def __init__(self, seconds: float, public: bool) -> None:
        self.seconds, self.public = seconds, public
        self._ends, self._backend = threading.local(), httpcore.SyncBackend()

    def start(self, _: httpx.Request) -> None:
        """Let the exchange of this thread begin."""
        self._ends.at = time.monotonic() + self.seconds

    def left(self, timeout: float | None) -> float:
        """Seconds that are left to a step; httpcore.ReadTimeout without any."""
        seconds = self._ends.at - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("no answer in time")
        return min(seconds, timeout or seconds)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_Stream":
        if self.public:
            host = public_address(host)
        stream = self._backend.connect_tcp(
            host, port, self.left(timeout), local_address, socket_options
        )
        return _Stream(stream, self)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    """A connection whose steps end with the exchange."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_Stream":
        left = self._deadline.left(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, left)
        return _Stream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def public_address(host: str) -> str:
    """An address of a host, all of whose addresses are of the public internet; raises
    AddressError otherwise."""
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressError("unknown host") from None
    addresses = [row[4][0] for row in rows]
    if not all(map(is_public, addresses)):
        raise AddressError("private address")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet; one inside of it that leads to
    an IPv4 address (mapped, 6to4, Teredo, NAT64) is if that is."""
    ip = ip_address(address)
    if ip.version == 6:
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if any(ip in network for network in EMBEDDED):
            inner = ip_address(int(ip) & 0xFFFFFFFF)
        ip = inner or ip
    local = ip.version == 6 and ip.is_site_local
    return ip.is_global and not ip.is_multicast and not local
