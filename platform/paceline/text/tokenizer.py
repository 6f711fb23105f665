"""Text to token ids and back, by the tokenizer and chat template of the model's own folder."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from paceline.core.model_identity import VocabularyIdentity
from paceline.errors import InvalidRequestError, ModelRefusedError
from paceline.text.chat import ROLES, ChatMessage
from paceline.text.length_bound import LengthBound, length_bound
from paceline.text.vocabulary import identify_vocabulary

_SPECIAL_ROLES = ("bos", "eos", "pad", "unk")


class TextTokenizer:
    """The one way from text to ids: REST, gRPC, targets and drafters all come through here.

    Thread-safe: encoding and decoding change no state.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, vocab_size: int | None = None, eos_token_ids: Sequence[int] = ()
    ) -> None:
        """Wrap a loaded tokenizer.

        ``vocab_size``: rows of the model's output head, where known; default: ids of the tokenizer.
        ``eos_token_ids``: what the model's own files say ends a sequence, besides the tokenizer's end token.
        """
        self._tokenizer = tokenizer
        named = {role: getattr(tokenizer, f"{role}_token_id") for role in _SPECIAL_ROLES}
        special_ids = {role: token_id for role, token_id in named.items() if token_id is not None}
        self.vocabulary: VocabularyIdentity = identify_vocabulary(
            tokenizer.get_vocab(), special_ids, vocab_size=vocab_size or len(tokenizer)
        )
        own_eos = [special_ids["eos"]] if "eos" in special_ids else []
        self.eos_token_ids: tuple[int, ...] = tuple(sorted({*eos_token_ids, *own_eos}))
        self._hidden_ids = frozenset(
            token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special
        )
        self._num_ids = len(tokenizer)

    @classmethod
    def load(cls, folder: Path, *, vocab_size: int | None = None) -> "TextTokenizer":
        """Load from a model folder; never from the network, never with code from the folder.

        Raises ModelRefusedError if the folder has no tokenizer that Transformers itself can load.
        """
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ModelRefusedError(
                f"The tokenizer of {folder.name} cannot be loaded ({error}). The folder needs tokenizer.json or a "
                "tokenizer that Transformers knows without remote code."
            ) from error
        return cls(tokenizer, vocab_size=vocab_size, eos_token_ids=_eos_of_folder(folder))

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` can work."""
        return bool(self._tokenizer.chat_template)

    @cached_property
    def _length_bound(self) -> LengthBound | None:
        return length_bound(self._tokenizer)

    def least_tokens(self, text: str) -> int:
        """A number of ids that `encode` cannot stay below; found from the length alone, so it costs nothing."""
        return 0 if self._length_bound is None else self._length_bound.least_tokens(text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a raw prompt, with the special tokens that the tokenizer adds by default."""
        return tuple(self._tokenizer(text, add_special_tokens=True)["input_ids"])

    def encode_fragment(self, text: str) -> tuple[int, ...]:
        """Ids of a piece of text, with no special token added: stop words, bad words."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def render_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Ids of a chat that asks for the assistant's next message.

        The template prints whatever special tokens the model wants, so the tokenizer adds none: a second
        begin-of-sequence token would cost quality and nobody would notice. Raises InvalidRequestError.
        """
        return self.encode_fragment(self.render(messages))

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids. Bytes that are no valid UTF-8 become U+FFFD; ids without a token become nothing."""
        # Clean-up of spaces looks across tokens, so streamed and whole text would differ.
        text = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def has_text(self, token_id: int, *, skip_special: bool = True) -> bool:
        """Whether the id can show up in decoded text; padding rows of the head and hidden tokens cannot."""
        return 0 <= token_id < self._num_ids and not (skip_special and token_id in self._hidden_ids)

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """A chat as the model's template writes it. Raises InvalidRequestError."""
        if not messages:
            raise InvalidRequestError("'messages' must have at least one message.", "messages")
        for index, message in enumerate(messages):
            if message.role not in ROLES:
                raise InvalidRequestError(
                    f"messages[{index}].role is '{message.role}'; known roles: {', '.join(ROLES)}.", "messages"
                )
        if not self.has_chat_template:
            raise InvalidRequestError("This model has no chat template; use /v1/completions with a prompt.", "messages")
        conversation = [message.as_template_input() for message in messages]
        try:
            rendered: Any = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidRequestError(
                f"The model's chat template does not accept these messages: {error}", "messages"
            ) from error
        return str(rendered)


def _eos_of_folder(folder: Path) -> tuple[int, ...]:
    """End-of-sequence ids by generation_config.json, or else config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        if isinstance(found, int):
            return (found,)
        if found:
            return tuple(found)
    return ()
