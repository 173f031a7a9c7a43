"""HTTP clients: use of proxies, and a guard against private addresses."""

import ipaddress
import socket
from contextlib import suppress
from ipaddress import IPv4Address, ip_address
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from factkit.run.params import ParamError

# IPv6 networks whose last four bytes are an IPv4 address: compatible, translated, NAT64
EMBEDDED = tuple(
    ipaddress.ip_network(network)
    for network in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)


class AddressError(Exception):
    """A host is unknown, or has an address that is not of the public internet."""


def uses_proxy(url: str | httpx.URL) -> bool:
    """Whether a request to this URL may use the proxy of the environment.

    Only https to other machines does: over http the proxy could read keys and
    questions, and this machine's address means another machine to the proxy.
    """
    url = httpx.URL(url)
    local = url.host == "localhost" or url.host.endswith(".localhost")
    with suppress(ValueError):
        local = ip_address(url.host).is_loopback
    return url.scheme == "https" and not local


def find_proxy(url: str) -> str | None:
    """Find the proxy of the environment for a URL, for clients that look for none.

    Raises ParamError if it is none of HTTP.
    """
    proxies = getproxies()
    proxy = proxies.get("https") or proxies.get("all")
    if not proxy or not uses_proxy(url) or proxy_bypass(httpx.URL(url).host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise ParamError(f"the proxy in the environment: {proxy} is not for HTTP")
    return proxy


def create_client(
    url: str, timeout_s: float, public: bool = False, **options: Any
) -> httpx.Client:
    """Create an HTTP client.

    url: target of the requests; decides whether the proxy of the environment is used.
    timeout_s: for each step of a request, in seconds. public: connect only to addresses
    of the public internet, without a proxy; raises AddressError otherwise. options: of
    httpx.Client. Raises ParamError if the environment names a proxy that can't be used.
    """
    if public:
        options["transport"] = transport = httpx.HTTPTransport()
        transport._pool._network_backend = PublicBackend()
    try:
        proxy = not public and uses_proxy(url)
        return httpx.Client(timeout=timeout_s, trust_env=proxy, **options)
    except ImportError as error:  # a SOCKS proxy
        raise ParamError(f"the proxy in the environment: {error}") from None


class PublicBackend(httpcore.SyncBackend):
    """Connects to the address that was checked: a second look-up could differ."""

    def connect_tcp(self, host: str, *args: Any, **kwargs: Any) -> Any:
        return super().connect_tcp(resolve_public(host), *args, **kwargs)


def resolve_public(host: str) -> str:
    """Resolve a host to an address. Raises AddressError unless all of its addresses are
    of the public internet."""
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressError("unknown host") from None
    addresses = [str(row[4][0]) for row in rows]
    if not all(map(is_public, addresses)):
        raise AddressError("private address")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet.

    An IPv6 address that leads to an IPv4 address (mapped, 6to4, Teredo, NAT64) counts
    as that one.
    """
    ip = ip_address(address)
    if ip.version == 6:
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if any(ip in network for network in EMBEDDED):
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        ip = inner or ip
    local = ip.version == 6 and ip.is_site_local
    return ip.is_global and not ip.is_multicast and not local
