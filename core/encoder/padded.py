"""The padded way: any encoder that transformers knows, with masks."""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from bertpool.encoder.batches import make_batches
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.device import Dtype
from bertpool.encoder.layers import Layers
from bertpool.encoder.limits import ENCODER_DECODERS
from bertpool.encoder.tokenizer import TokenizedText, Tokenizer
from bertpool.encoder.weight_check import POOLER, Misshapen, check_pooler, check_weights
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling import TokenEmbeddings
from bertpool.pooling.attention import attention_received
from bertpool.pooling.masks import without
from safetensors import SafetensorError
from torch import Tensor, nn

# Eager attention keeps every layer's weights until the forward returns; this bounds them.
ATTENTION_VALUES = 1 << 26  # float32 values, 256 MiB
# How far a text's vectors may move beside a longer one before the padding is taken to leak.
LEAK = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.05}


class PaddedEncoder:
    """Runs a transformers model on padded batches.

    Padding always stands on the right, whatever the tokenizer prefers: with absolute positions a
    text padded on the left gets other positions than the same text alone.

    Args:
        model: an encoder in evaluation mode, on its device.
        pad_id: the id to fill with.
        batch_tokens: token slots in a batch.
        needs: what to provide beside token vectors: ``pooler``, ``attention``.
        wanted: the layers to give token vectors of.
        num_layers: how many there are.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        pad_id: int,
        batch_tokens: int,
        needs: frozenset[str],
        wanted: Sequence[Layers],
        num_layers: int,
    ) -> None:
        self._model = model
        self._pad_id = pad_id
        self._batch_tokens = batch_tokens
        self._needs = needs
        self._wanted = wanted
        self._num_layers = num_layers
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._config: Any = model.config
        self._head: int | None = None
        self.mixed_lengths = True
        self.mixed_lengths = not self._padding_leaks()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self._model.parameters()).device

    @property
    def workers(self) -> int:
        """One: transformers' modules are run by one thread, whose operations use several."""
        return 1

    @property
    def num_heads(self) -> int:
        """How many attention heads each layer has."""
        return int(getattr(self._config, "num_attention_heads", 1))

    def of_head(self, head: int) -> PaddedEncoder:
        """Give the same encoder with the attention received from one head alone."""
        other = copy.copy(self)
        other._head = head
        return other

    def batches(self, texts: Sequence[TokenizedText]) -> Iterator[list[int]]:
        """Yield the indices of each batch, longest texts first."""
        lengths = [len(text.input_ids) for text in texts]
        budget = self._batch_tokens
        if "attention" in self._needs and lengths:
            budget = min(budget, self._attention_budget(max(lengths)))
        for batch in make_batches(lengths, budget, mixed_lengths=self.mixed_lengths):
            yield batch.tolist()

    def slots(self, texts: Sequence[TokenizedText]) -> int:
        """Count the token slots that a batch takes up, padding included."""
        return len(texts) * max(len(text.input_ids) for text in texts)

    @torch.inference_mode()
    def encode(self, texts: Sequence[TokenizedText]) -> Iterator[tuple[Layers, TokenEmbeddings]]:
        """Run one batch and yield its token vectors, a single block for each layer wanted.

        Raises:
            ModelError: the model's output isn't one vector for each token, or lacks a layer.
        """
        inputs, mask, prompt, excluded = self._pad(texts)
        output = self._model(**inputs, **self._asked(), return_dict=True)
        text_mask = without(mask, prompt)
        for layers in self._wanted:
            states = [self._hidden_states(output, index, mask) for index in layers]
            yield (
                layers,
                TokenEmbeddings(
                    states[0] if len(states) == 1 else torch.stack(states).float().mean(dim=0),
                    text_mask,
                    without(text_mask, excluded),
                    self._received(output, layers[0], mask) if "attention" in self._needs else None,
                    output.pooler_output if POOLER in self._needs else None,
                ),
            )

    def _asked(self) -> dict[str, bool]:
        """Ask the model for what is needed beside the last hidden state."""
        inner = self._wanted != ((self._num_layers,),)
        return {
            **({"output_attentions": True} if "attention" in self._needs else {}),
            **({"output_hidden_states": True} if inner else {}),
        }

    def _hidden_states(self, output: Any, index: int, mask: Tensor) -> Tensor:
        """Take a layer's hidden states, where there is one vector for each token."""
        all_states = getattr(output, "hidden_states", None) or ()
        states: Tensor | None = getattr(output, "last_hidden_state", None)
        if index != self._num_layers:
            states = all_states[index] if len(all_states) == self._num_layers + 1 else None
        if states is None or states.shape[:2] != mask.shape:
            name = type(self._model).__name__
            what = "" if index == self._num_layers else f" in layer {index}"
            raise ModelError(f"{name} gives no vector for each token{what}; is it a text encoder?")
        return states

    def _received(self, output: Any, index: int, mask: Tensor) -> Tensor:
        """Take a layer's weights, where they are of every token for every token."""
        all_weights = getattr(output, "attentions", None) or ()
        weights = None
        if index == self._num_layers:
            weights = all_weights[-1] if all_weights else None
        elif len(all_weights) == self._num_layers:
            weights = all_weights[index - 1]
        if weights is None or weights.shape[-2:] != (mask.shape[1], mask.shape[1]):
            name = type(self._model).__name__
            raise PoolingError(
                f"{name} gives no attention of each token for each; choose another --strategy"
            )
        if self._head is not None:
            weights = weights[:, self._head : self._head + 1]
        return attention_received(weights, mask)

    def _pad(
        self, texts: Sequence[TokenizedText]
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """Return the model's inputs, and masks of real, prompt and excluded tokens.

        All are ``(batch, tokens)``.
        """
        shape = (len(texts), max(len(text.input_ids) for text in texts))
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        types = np.zeros(shape, dtype=np.int64)
        mask, prompt, excluded = np.zeros((3, *shape), dtype=bool)
        for row, text in enumerate(texts):
            end = len(text.input_ids)
            ids[row, :end], mask[row, :end] = text.input_ids, True
            if text.token_type_ids is not None:
                types[row, :end] = text.token_type_ids
            prompt[row, : text.prompt_tokens] = True
            if text.excluded is not None:
                excluded[row, :end] = text.excluded
        real = torch.from_numpy(mask).to(self.device)
        inputs = {"input_ids": torch.from_numpy(ids).to(self.device), "attention_mask": real.long()}
        # A tokenizer may tell two types apart where the model has one: then it has none to tell.
        if texts[0].token_type_ids is not None and types.max() < self._type_count():
            inputs["token_type_ids"] = torch.from_numpy(types).to(self.device)
        taken = {name: value for name, value in inputs.items() if name in self._accepts}
        left_out = [torch.from_numpy(tokens).to(self.device) for tokens in (prompt, excluded)]
        return taken, real, left_out[0], left_out[1]

    def _type_count(self) -> int:
        """Return how many token types the model tells apart; without the setting, any number."""
        count: int | None = getattr(self._config, "type_vocab_size", None)
        return 1 << 30 if count is None else count

    def _attention_budget(self, longest: int) -> int:
        """Return the slots whose attention weights, of all layers, stay within the bound."""
        config = self._config
        per_token: int = config.num_hidden_layers * self.num_heads * longest
        return max(longest, ATTENTION_VALUES // per_token)

    def _padding_leaks(self) -> bool:
        """Encode a probe alone and beside a longer one: do its vectors stay the same?

        Some models take no mask, or ignore it. Their texts are then batched by equal length.
        """
        ids = list(range(1, 5))
        short, long = TokenizedText(ids, None, 4), TokenizedText(ids * 2, None, 8)
        try:
            alone, beside = (next(self.encode(batch))[1] for batch in ([short], [short, long]))
        except (RuntimeError, IndexError) as error:
            name = type(self._model).__name__
            raise ModelError(f"{name} can't encode a short text: {error}") from error
        if "attention_mask" not in self._accepts:
            return True
        one, other = alone.hidden_states[0].float(), beside.hidden_states[0, :4].float()
        gap = float((one - other).abs().max() / one.abs().max().clamp_min(1e-6))
        return gap > LEAK[alone.hidden_states.dtype]


def load_padded(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    *,
    needs: frozenset[str],
    wanted: Sequence[Layers],
    device: torch.device,
    dtype: Dtype,
    batch_tokens: int,
) -> PaddedEncoder:
    """Load a checkpoint through transformers, with every encoder weight found.

    Raises:
        ModelError: the checkpoint isn't whole, or transformers can't load it.
        PoolingError: a pooler is needed and the checkpoint has none.
    """
    model, info = _from_pretrained(checkpoint, dtype, eager="attention" in needs)
    _check(checkpoint, model, info, needs)
    return PaddedEncoder(
        model.eval().to(device),
        pad_id=tokenizer.pad_id,
        batch_tokens=batch_tokens,
        needs=needs,
        wanted=wanted,
        num_layers=checkpoint.num_layers,
    )


def _from_pretrained(
    checkpoint: Checkpoint, dtype: Dtype, *, eager: bool
) -> tuple[nn.Module, dict[str, Any]]:
    # An encoder-decoder's AutoModel wants decoder inputs; this class takes its encoder alone.
    config = checkpoint.config
    alone = config.get("is_encoder_decoder") or config.get("model_type") in ENCODER_DECODERS
    loader: Any = transformers.AutoModelForTextEncoding if alone else transformers.AutoModel
    try:
        with _silenced():
            loaded: tuple[nn.Module, dict[str, Any]] = loader.from_pretrained(
                checkpoint.directory,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported, and refused below with both shapes
                local_files_only=True,
                trust_remote_code=False,
                **({"attn_implementation": "eager"} if eager else {}),
            )
    except (
        OSError, ValueError, KeyError, RuntimeError, ImportError,
        SafetensorError, pickle.UnpicklingError,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"model {checkpoint.name} can't be loaded: {reason}") from error
    return loaded


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep transformers' bars and reports off the terminal: what they say is checked here."""
    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _check(
    checkpoint: Checkpoint, model: nn.Module, info: dict[str, Any], needs: frozenset[str]
) -> None:
    """Check what transformers says of the weights it found."""
    missing = set(info["missing_keys"])
    of_pooler = {key for key in missing if key.startswith(POOLER)}
    check_weights(
        checkpoint,
        misshapen=[Misshapen(*mismatch) for mismatch in sorted(info["mismatched_keys"])],
        missing=missing - of_pooler,
        others=info["unexpected_keys"],
        own_modules={name for name, _ in model.named_children()} - {POOLER},
        prefix=f"{getattr(model, 'base_model_prefix', '')}.",
    )
    if POOLER in needs:
        exists = getattr(model, POOLER, None) is not None
        check_pooler(checkpoint, exists=exists, missing=of_pooler)
