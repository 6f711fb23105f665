"""Reads a request body without ever holding more than the limit."""

import asyncio

from starlette.requests import Request

from paceline.errors import DeadlineExceededError, PayloadTooLargeError


async def read_body(request: Request, *, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body.

    Raises PayloadTooLargeError as soon as it is known to be too large, DeadlineExceededError where it is not
    there in time, and starlette's ClientDisconnect where the client went away.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise PayloadTooLargeError(int(declared[:20]), limit_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > limit_bytes:
                    raise PayloadTooLargeError(len(body), limit_bytes)
    except TimeoutError:
        raise DeadlineExceededError(timeout_s) from None
    return bytes(body)
