"""Every metric that Paceline exports. Names, units and labels are set here and nowhere else.

Counters live in the hot path; rates and ratios are left to the query, which the doc text gives where one
is wanted. Every process exports the whole catalogue and records its own part: gateways ``gateway.*``; targets
``engine.*``, ``spec.*``, ``link.*`` and, for drafters inside them, ``drafter.failures`` and ``drafter.cascade_*``;
drafter replicas ``drafter.*``. A metric without labels that a process does not record stays at 0 there.
"""

from paceline.telemetry.instruments import Counter, Gauge, Histogram, Instrument, Label

NO_GROUP = "none"  # value of the label "group" for plain decoding
MAX_POSITION = 64  # the largest draft budget

_GROUP = Label("group", "Drafter group by its name in the configuration; `none` for plain decoding.")
_DRAFTER_GROUP = Label("group", "Drafter group by its name in the configuration.")
_POSITION = Label(
    "position",
    "Place of a draft in its proposal; 0 is the first.",
    tuple(str(position) for position in range(MAX_POSITION)),
)
_LEVEL = Label("level", "Place of the level in its cascade; 0, the cheapest, corrects nothing.", ("1", "2", "3"))
_ROUTE = Label("route", "How the request was decoded.", ("plain", "speculative"))
_MODE = Label("mode", "What the request asked for in `speculation.mode`.", ("auto", "on", "off"))
_DOOR = Label("door", "Public API that the request came through.", ("http", "grpc"))
_FINISH = Label("finish", "How it ended.", ("stop", "length", "abort", "error"))
_ERROR_REASON = Label(
    "reason",
    "Reason of the error, as the client sees it.",
    (
        "INVALID_REQUEST",
        "CONTEXT_LENGTH_EXCEEDED",
        "UNSUPPORTED_FEATURE",
        "MODEL_NOT_FOUND",
        "DRAFTER_GROUP_NOT_FOUND",
        "PAYLOAD_TOO_LARGE",
        "UNAUTHENTICATED",
        "OVERLOADED",
        "TARGET_UNAVAILABLE",
        "TARGET_LOST",
        "TARGET_LEAVING",
        "REQUEST_ABANDONED",
        "DEADLINE_EXCEEDED",
        "STREAM_GAP",
        "ENGINE_FAILED",
        "CACHE_CORRUPTION",
        "INTERNAL",
    ),
)
_FURTHER_REASON = Label(
    "reason",
    "Why the attempt before ended: `lost` (its replica died, fell silent or failed), `leaving` (its replica is about "
    "to go), `refused` (its replica could not run it).",
    ("lost", "leaving", "refused"),
)
_PAGE_STATE = Label(
    "state",
    "`held` pages belong to running choices, `cached` ones to prefixes that no running choice uses and that give way "
    "when pages run short; `free` ones have no holder.",
    ("free", "cached", "held"),
)
_REPLY_KIND = Label("kind", "What the drafter answered.", ("proposal", "need_sync", "refused"))
_DROP_REASON = Label(
    "reason",
    "Why the proposal was not verified: `stale` (another prefix), `late` (past its deadline), `invalid` (failed a "
    "check of untrusted input), `replaced` (a newer request), `closed` (its session ended), `full` (bounded outbox).",
    ("stale", "late", "invalid", "replaced", "closed", "full"),
)
_WAITING_MOVE = Label(
    "move",
    "`wait`: drafts were waited for; `fill`: the pass ran without the rows whose drafts were under way; `go`: those "
    "rows went into it without drafts.",
    ("wait", "fill", "go"),
)
_SHED_REASON = Label(
    "reason",
    "`full`: gateway.max_ongoing requests were there; `displaced`: they were, and one came that goes before it; "
    "`expected_wait`: it would have waited too long; `waited`: it has waited for tunables.max_queue_wait_s.",
    ("full", "displaced", "expected_wait", "waited"),
)
_REFUSAL_REASON = Label(
    "reason",
    "Why the drafter did not draft.",
    ("CONTEXT_LENGTH", "KV_FULL", "DRAFTER_FAILED", "INVALID_ROW", "OVERLOADED"),
)

_STEP_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 0.8, 1.6, 3.2)
_QUEUE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

# Gateway

REQUESTS = Counter(
    "gateway.requests",
    "{request}",
    "Requests that were routed and have ended. Requests that asked for speculation and ran plain: "
    'rate(paceline_gateway_requests_total{mode="on",route="plain"}[5m]).',
    (_DOOR, _MODE, _ROUTE, _FINISH),
)
FAILED_REQUESTS = Counter(
    "gateway.failed_requests",
    "{request}",
    "Requests that ended with an error, refused ones included. Errors that are not the client's: "
    'sum(rate(paceline_gateway_failed_requests_total{reason=~"TARGET_.*|REQUEST_ABANDONED|ENGINE_FAILED|INTERNAL"}[5m])).',
    (_DOOR, _ERROR_REASON),
)
RESUMES = Counter(
    "gateway.resumes",
    "{attempt}",
    "Further attempts at answers that had begun: they go on elsewhere from the tokens that the client has.",
    (_FURTHER_REASON,),
)
RETRIES = Counter(
    "gateway.retries",
    "{attempt}",
    "Further attempts at requests whose answer had not begun.",
    (_FURTHER_REASON,),
)
QUEUED_REQUESTS = Gauge("gateway.queued_requests", "{request}", "Requests that wait for a target replica.")
SHED_REQUESTS = Counter(
    "gateway.shed_requests",
    "{request}",
    "Requests that the gateway's queue turned away, resumed ones never. Clients see OVERLOADED and when to try again.",
    (_SHED_REASON,),
)
QUEUE_TIME = Histogram(
    "gateway.queue_time",
    "s",
    "Time that a request waited for a place on a target replica; refused ones are not counted.",
    (),
    _QUEUE_BUCKETS,
)
OPEN_STREAMS = Gauge("gateway.open_streams", "{request}", "Requests that hold a target replica.")
PROMPT_TOKENS = Counter("gateway.prompt_tokens", "{token}", "Prompt tokens of routed requests, once per request.")
COMPLETION_TOKENS = Counter("gateway.completion_tokens", "{token}", "Committed tokens sent to clients.", (_ROUTE,))
FIRST_TOKEN_TIME = Histogram(
    "gateway.first_token_time",
    "s",
    "Time from the receipt of a request to its first committed token.",
    (_ROUTE,),
    _REQUEST_BUCKETS,
)
REQUEST_TIME = Histogram(
    "gateway.request_time", "s", "Time from the receipt of a request to its end.", (_ROUTE,), _REQUEST_BUCKETS
)

# Engine

RUNNING = Gauge("engine.running", "{choice}", "Choices that hold KV pages.")
WAITING = Gauge("engine.waiting", "{choice}", "Choices that wait for admission.")
KV_PAGES = Gauge("engine.kv_pages", "{page}", "Pages of the target's KV cache.", (_PAGE_STATE,))
STEPS = Counter("engine.steps", "{step}", "Engine steps that ran a target pass.")
STEP_TIME = Histogram("engine.step_time", "s", "Time of one engine step.", (), _STEP_BUCKETS)
TARGET_FORWARDS = Counter("engine.target_forwards", "{pass}", "Passes of the target model.")
PREFILL_TOKENS = Counter("engine.prefill_tokens", "{token}", "Prompt tokens that went through the target.")
PREFIX_HIT_TOKENS = Counter(
    "engine.prefix_hit_tokens",
    "{token}",
    "Prompt tokens whose K/V were in the prefix cache. Share of prompts that is not computed: "
    "rate(paceline_engine_prefix_hit_tokens_total[5m]) / "
    "(rate(paceline_engine_prefix_hit_tokens_total[5m]) + rate(paceline_engine_prefill_tokens_total[5m])).",
)
EVICTED_PAGES = Counter("engine.evicted_pages", "{page}", "Pages that the prefix cache gave up for others.")
PREEMPTIONS = Counter(
    "engine.preemptions",
    "{choice}",
    "Times that a running choice lost its pages to older ones and went back to the queue.",
)
DECODE_TOKENS = Counter(
    "engine.decode_tokens", "{token}", "Last committed tokens and drafts that went through the target."
)
FINISHED_CHOICES = Counter("engine.finished_choices", "{choice}", "Choices that ended.", (_FINISH,))
VERIFY_CALLS = Counter("engine.verify_calls", "{call}", "Calls of the verifier with at least one draft.")
DRAFTER_CALLS = Counter("engine.drafter_calls", "{call}", "Requests to a drafter, one per step and group.", (_GROUP,))

# Speculation, seen by the target

ROUNDS = Counter(
    "spec.rounds",
    "{round}",
    "Target passes that committed a choice's tokens, once per choice. tau: "
    "rate(paceline_spec_committed_tokens_total[5m]) / rate(paceline_spec_rounds_total[5m]).",
    (_GROUP,),
)
COMMITTED_TOKENS = Counter(
    "spec.committed_tokens", "{token}", "Committed tokens, the target's own included.", (_GROUP,)
)
DRAFTED_TOKENS = Counter(
    "spec.drafted_tokens", "{token}", "Draft tokens, of trees all nodes, that were in a target pass.", (_GROUP,)
)
TESTED_TOKENS = Counter(
    "spec.tested_tokens",
    "{token}",
    "Draft tokens, of trees levels, that verification looked at; none after the first rejection.",
    (_GROUP,),
)
ACCEPTED_TOKENS = Counter(
    "spec.accepted_tokens",
    "{token}",
    "Draft tokens kept by verification. alpha: "
    "rate(paceline_spec_accepted_tokens_total[5m]) / rate(paceline_spec_tested_tokens_total[5m]).",
    (_GROUP,),
)
TESTED_AT = Counter(
    "spec.tested_at",
    "{round}",
    "Rounds that tested the draft, of trees the level, at this position.",
    (_GROUP, _POSITION),
)
ACCEPTED_AT = Counter(
    "spec.accepted_at",
    "{round}",
    "Rounds that accepted a draft at this position. a_i: "
    "rate(paceline_spec_accepted_at_total[5m]) / rate(paceline_spec_tested_at_total[5m]).",
    (_GROUP, _POSITION),
)
DRAFT_WAIT = Histogram(
    "spec.draft_wait", "s", "Time that a step waited for drafts of this group.", (_GROUP,), _STEP_BUCKETS
)
WAITING_MOVES = Counter(
    "spec.waiting_moves", "{step}", "Steps that began while drafts were under way, by what was done.", (_WAITING_MOVE,)
)
SUSPENSIONS = Counter(
    "spec.suspensions",
    "{suspension}",
    "Times that a group did not keep pace with the target and was only probed from then on.",
    (_GROUP,),
)
SHADOW_TESTED_AT = Counter(
    "spec.shadow_tested_at",
    "{round}",
    "Proposals for comparison only whose draft at this position was held against a committed token.",
    (_GROUP, _POSITION),
)
SHADOW_ACCEPTED_AT = Counter(
    "spec.shadow_accepted_at",
    "{round}",
    "Proposals for comparison only whose draft at this position was the committed token.",
    (_GROUP, _POSITION),
)
VERIFY_TIME = Histogram("spec.verify_time", "s", "Time of one call of the verifier.", (), _STEP_BUCKETS)
REROOTED_DRAFTS = Counter(
    "spec.rerooted_drafts", "{proposal}", "Late proposals of which a part was still of use.", (_GROUP,)
)
DROPPED_DRAFTS = Counter(
    "spec.dropped_drafts", "{proposal}", "Proposals that were never verified.", (_GROUP, _DROP_REASON)
)

# Link, seen by the target

LINK_REPLIES = Counter("link.replies", "{reply}", "Replies of a remote drafter group.", (_GROUP, _REPLY_KIND))
LINK_CONNECTS = Counter("link.connects", "{connection}", "Links that passed the handshake.", (_GROUP,))
LINK_FAILURES = Counter(
    "link.failures", "{connection}", "Links that broke, could not connect or were refused at the handshake.", (_GROUP,)
)
LINK_REPLY_TIME = Histogram(
    "link.reply_time", "s", "Time from a request on the link to its first reply.", (_GROUP,), _STEP_BUCKETS
)

# Drafter, seen by itself

DRAFTER_SESSIONS = Gauge("drafter.sessions", "{session}", "Sessions that the drafter knows.", (_DRAFTER_GROUP,))
DRAFTER_PENDING = Gauge("drafter.pending", "{row}", "Rows that wait for a proposal.", (_DRAFTER_GROUP,))
DRAFTER_LINKS = Gauge("drafter.links", "{connection}", "Targets that are linked to the drafter.", (_DRAFTER_GROUP,))
DRAFTER_ROWS = Counter("drafter.rows", "{row}", "Rows that arrived over links.", (_DRAFTER_GROUP,))
DRAFTER_REPLIES = Counter(
    "drafter.replies", "{reply}", "Replies that were sent over links.", (_DRAFTER_GROUP, _REPLY_KIND)
)
DRAFTER_TOKENS = Counter("drafter.tokens", "{token}", "Draft tokens that were sent over links.", (_DRAFTER_GROUP,))
DRAFTER_REFUSALS = Counter(
    "drafter.refusals", "{row}", "Rows that the drafter would not draft for.", (_DRAFTER_GROUP, _REFUSAL_REASON)
)
DRAFTER_DROPS = Counter(
    "drafter.drops", "{row}", "Rows and replies that were dropped unsent.", (_DRAFTER_GROUP, _DROP_REASON)
)
DRAFTER_FAILURES = Counter("drafter.failures", "{call}", "Calls in which the method raised.", (_DRAFTER_GROUP,))
DRAFT_TIME = Histogram(
    "drafter.draft_time", "s", "Time of one unit of drafting work.", (_DRAFTER_GROUP,), _STEP_BUCKETS
)
CASCADE_PASSES = Counter(
    "drafter.cascade_passes",
    "{pass}",
    "Passes of a model over what the level below it proposed.",
    (_DRAFTER_GROUP, _LEVEL),
)
CASCADE_KEPT_TOKENS = Counter(
    "drafter.cascade_kept_tokens",
    "{token}",
    "Drafts of the level below that the model would have made itself. Tokens per pass: "
    "1 + rate(paceline_drafter_cascade_kept_tokens_total[5m]) / rate(paceline_drafter_cascade_passes_total[5m]), "
    "where one session drafts at a time.",
    (_DRAFTER_GROUP, _LEVEL),
)
CASCADE_REJECTED_TOKENS = Counter(
    "drafter.cascade_rejected_tokens",
    "{token}",
    "Drafts of the level below, of trees all nodes, that did not go up.",
    (_DRAFTER_GROUP, _LEVEL),
)
CASCADE_CORRECTIONS = Counter(
    "drafter.cascade_corrections",
    "{token}",
    "Tokens that the model put in the place of a draft of the level below.",
    (_DRAFTER_GROUP, _LEVEL),
)

ALL: tuple[Instrument, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
