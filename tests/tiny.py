"""Tiny randomly initialised models with a real tokenizer, made in seconds, for tests."""

from __future__ import annotations

from pathlib import Path

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CORPUS = """
def area(width, height):
    # the area of a rectangle
    return width * height

class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

function add(left, right) { return left + right; }
```python
```
"""


def make_tokenizer():
    """Return a byte-level BPE tokenizer of about 400 tokens with ChatML turns."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS] * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = CHATML
    return fast


def make_vocabulary():
    """Return what the engine makes of that tokenizer."""
    from engine.vocabulary import vocabulary_of

    return vocabulary_of("tiny", make_tokenizer(), Path("no folder"))


def make_model(kind: str, vocabulary: int, seed: int = 0, tied: bool = False, spread: float = 0.3):
    """Return a random causal LM of about 100,000 weights; `kind` is `qwen2` or `llama`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        # Large weights make a random model decided, not a coin toss at every token.
        "initializer_range": spread,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**shape)).eval()
    return LlamaForCausalLM(LlamaConfig(**shape)).eval()


def save_tiny_model(
    folder: Path, kind: str = "qwen2", seed: int = 0, tied: bool = False, spread: float = 0.3
) -> Path:
    """Write a tiny model in Hugging Face layout; return `folder`."""
    tokenizer = make_tokenizer()
    make_model(kind, len(tokenizer), seed, tied, spread).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
