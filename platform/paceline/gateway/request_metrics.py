"""What the gateway counts about one request, from receipt to end."""

import asyncio
import time

from paceline.core.plans import Plan, Route
from paceline.errors import PacelineError
from paceline.gateway.gateway_request import GatewayRequest
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics


class RequestMetrics:
    """A stop watch with counters; ends once, whatever happens."""

    def __init__(self, metrics: Metrics, request: GatewayRequest) -> None:
        self._metrics = metrics
        self._door = request.door
        self._mode = request.speculation.mode.value
        self._start_s = time.monotonic()
        self._route: Route | None = None
        self._ended = False

    def routed(self, plan: Plan, prompt_tokens: int) -> None:
        """The request has a plan."""
        self._route = plan.route
        self._metrics.count(catalogue.PROMPT_TOKENS, prompt_tokens)

    def first_token(self, plan: Plan) -> None:
        """The first committed token has arrived, from an attempt with this plan."""
        self._route = plan.route
        self._metrics.observe(catalogue.FIRST_TOKEN_TIME, self._elapsed_s(), route=plan.route.value)

    def tokens(self, amount: int) -> None:
        """Committed tokens have arrived."""
        if self._route is not None:
            self._metrics.count(catalogue.COMPLETION_TOKENS, amount, route=self._route.value)

    def failed(self, error: BaseException) -> None:
        """The request ended with an error; one that was cancelled counts as aborted."""
        if self._ended:
            return
        if isinstance(error, asyncio.CancelledError):
            self.ended("abort")
            return
        reason = error.reason if isinstance(error, PacelineError) else PacelineError.reason
        self._metrics.count(catalogue.FAILED_REQUESTS, door=self._door, reason=reason)
        self.ended("error")

    def ended(self, finish: str) -> None:
        """The request ended: "stop", "length", "abort" or "error". Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        if self._route is None:
            return
        route = self._route.value
        self._metrics.count(catalogue.REQUESTS, door=self._door, mode=self._mode, route=route, finish=finish)
        self._metrics.observe(catalogue.REQUEST_TIME, self._elapsed_s(), route=route)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._start_s
