"""What is compared: request options under a name, written ``speculation=on,drafter=ngram``."""

from dataclasses import dataclass, fields

from paceline.errors import ConfigError

_MODES = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class Variant:
    """Options of every request of one side of a comparison. None leaves a choice to the endpoint."""

    name: str
    speculation: str | None = None
    drafter: str | None = None
    max_draft_tokens: int | None = None
    temperature: float = 0.0

    @property
    def asks_for_speculation(self) -> bool:
        """Whether a request says anything that only Paceline understands."""
        return any(value is not None for value in (self.speculation, self.drafter, self.max_draft_tokens))

    @property
    def text(self) -> str:
        """The options as they are written."""
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return ",".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in shown.items()
            if value is not None
        )


def parse_variant(name: str, text: str, *, temperature: float = 0.0) -> Variant:
    """Read ``key=value,key=value``. Raises ConfigError that lists the known keys."""
    options: dict[str, str] = {}
    known = [field.name for field in fields(Variant) if field.name != "name"]
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition("=")
        if not separator or key not in known:
            raise ConfigError(f"'{part}' is no option of a variant. Write key=value; keys: {', '.join(known)}.")
        options[key] = value
    mode = options.get("speculation")
    if mode is not None and mode not in _MODES:
        raise ConfigError(f"speculation is '{mode}'; it can be {', '.join(_MODES)}.")
    try:
        drafts = options.get("max_draft_tokens")
        return Variant(
            name,
            speculation=mode,
            drafter=options.get("drafter"),
            max_draft_tokens=None if drafts is None else int(drafts),
            temperature=float(options.get("temperature", temperature)),
        )
    except ValueError as error:
        raise ConfigError(f"Variant '{text}': {error}.") from error
