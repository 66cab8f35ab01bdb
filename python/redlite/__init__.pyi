from os import PathLike
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

__version__: str

class Error(RuntimeError):
    """What a file, an argument or the machine causes; one line that says what, where and what to do."""

class TensorInfo:
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy has it: rows first, the length of a row last."""
    @property
    def bytes(self) -> int: ...

class CacheStatistics:
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def prefetched(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def stall_seconds(self) -> float: ...

class Model:
    """An open model file. Weights are mapped, not read."""

    def __init__(self, path: Union[str, PathLike[str]]) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def n_experts(self) -> int: ...
    @property
    def n_experts_used(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def dense_bytes(self) -> int: ...
    @property
    def expert_bytes(self) -> int: ...
    def tokenize(self, text: str, special: bool = False) -> list[int]: ...
    def detokenize(self, tokens: Sequence[int], special: bool = False) -> str:
        """Bytes that are no UTF-8 become U+FFFD."""
    def is_end(self, token: int) -> bool: ...
    def chat_prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Optional[Sequence[Mapping[str, Any]]] = None
    ) -> list[int]:
        """A conversation, in the shape of the OpenAI API, as the model's own template writes it."""
    def tensors(self) -> list[TensorInfo]: ...
    def dequantize(self, tensor: str) -> npt.NDArray[np.float32]:
        """A tensor's values, exactly as its format defines them."""

class Answer(Iterator[str]):
    """An answer on its way: an iterator over pieces of text."""

    @property
    def tokens(self) -> list[int]:
        """The answer's tokens so far."""
    @property
    def finish_reason(self) -> str:
        """"end", "length" or "stop"; empty before the end."""
    def __iter__(self) -> Answer: ...
    def __next__(self) -> str: ...

class Session:
    """One sequence of tokens and the state behind it. For one thread at a time; computing lets other threads run."""

    def __init__(
        self,
        model: Model,
        *,
        backend: str = "cpu",
        cache_mib: Optional[int] = None,
        context: int = 4096,
        threads: int = 0,
        prefetch: bool = True,
        half_kv: bool = True,
    ) -> None: ...
    def logits(self, tokens: Sequence[int], all: bool = False) -> npt.NDArray[np.float32]:
        """Appends tokens; the logits behind the last one, [n_vocab], or behind each, [n, n_vocab]."""
    def generate(
        self,
        prompt: Union[str, Sequence[int]],
        *,
        max_tokens: int = 256,
        temperature: float = 0,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1,
        presence_penalty: float = 0,
        frequency_penalty: float = 0,
        seed: int = 0,
        stop: Sequence[str] = (),
        ignore_end: bool = False,
    ) -> Answer:
        """Appends a prompt (a text goes into the model as it is; see Model.chat_prompt) and then the answer."""
    @property
    def position(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def reset(self) -> None: ...
    def cache_statistics(self) -> CacheStatistics: ...
    def record_routing(self, on: bool = True) -> None:
        """Records which experts are chosen from now on, or stops to."""
    def take_routing(self) -> npt.NDArray[np.int32]:
        """What was recorded since the last call: [n_tokens, n_layers, n_experts_used], best first."""
