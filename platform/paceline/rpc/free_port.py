"""Whether a port can be listened on."""

import socket


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port of ``host`` now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT can be listened on
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
