"""Reads a request body without ever holding more than the limit."""

from starlette.requests import Request

from paceline.errors import PayloadTooLargeError


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises PayloadTooLargeError as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise PayloadTooLargeError(int(declared[:20]), limit_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit_bytes:
            raise PayloadTooLargeError(len(body), limit_bytes)
    return bytes(body)
