"""One answer over as many attempts as it takes."""

import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Sequence

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.errors import TargetUnavailableError
from paceline.gateway.target_pool import PlaceWish, TargetPool

logger = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3


async def stream_answer(
    pool: TargetPool, request: GenerationRequest, wish: PlaceWish
) -> AsyncGenerator[Sequence[GenerationChunk], None]:
    """Run a request and stream its chunks; an attempt that fails before its first chunk is repeated elsewhere."""
    request_id = request.key.rpartition("/")[0]
    for number in range(1, _MAX_ATTEMPTS + 1):
        started = False
        attempt = dataclasses.replace(request, key=f"{request_id}/{number}")
        # Outside the `try`: whoever has waited for a place in vain does not wait again.
        async with pool.place(wish) as place:
            try:
                async with contextlib.aclosing(place.stream(attempt)) as batches:
                    async for batch in batches:
                        started = True
                        yield batch
            except TargetUnavailableError as error:
                if started or number == _MAX_ATTEMPTS:
                    raise
                logger.warning("attempt %s failed before its first token: %s", attempt.key, error)
                wish = dataclasses.replace(wish, resumed=True, exclude=wish.exclude | {place.replica_id})
            else:
                return
