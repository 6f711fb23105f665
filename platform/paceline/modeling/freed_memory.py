"""Room of weights that were laid out anew, or read in another type."""

import ctypes


def return_freed_memory() -> None:
    """Give freed memory back to the system; glibc would keep it for later, as a part of this process."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
