"""Messages of a chat, before they are rendered by the model's own template."""

from dataclasses import dataclass

ROLES = ("system", "user", "assistant", "tool")


def canonical_role(role: str) -> str:
    """The role as chat templates know it: "developer" is the newer name of "system"."""
    return "system" if role == "developer" else role


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. Content is text; other kinds of content are refused at the edge."""

    role: str  # one of ROLES
    content: str
    name: str | None = None
    tool_call_id: str | None = None  # of a tool message: the call that it answers

    def as_template_input(self) -> dict[str, str]:
        """The message as chat templates expect it; unset fields are absent, not None."""
        optional = {"name": self.name, "tool_call_id": self.tool_call_id}
        return {"role": self.role, "content": self.content} | {k: v for k, v in optional.items() if v is not None}
