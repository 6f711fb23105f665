"""Which addresses are the machine's own."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether the address is one of the machine itself. Unknown forms are not."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def host_of(address: str) -> str:
    """Host of HOST:PORT, such as ``127.0.0.1:9000`` or ``[::1]:9000``."""
    return address.rpartition(":")[0].strip("[]")
