"""A model for texts in memory: ``bertpool.load(name).embed(texts)``."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from bertpool.embedder import Embedder, load_embedder
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.device import Dtype, check_device_name, find_device
from bertpool.encoder.layers import parse_layers
from bertpool.encoder.limits import LengthLimit, length_limit
from bertpool.encoder.recipe import (
    TOKENS,
    Named,
    Reading,
    Recipe,
    make_recipe,
    split_names,
)
from bertpool.encoder.threads import default_threads
from bertpool.encoder.tokenized import tokenize
from bertpool.encoder.tokenizer import load_tokenizer
from bertpool.errors import ModelError, PoolingError

# Of texts that are tokenized, sorted and batched together; it bounds what is held of them.
WINDOW_ROWS = 16_384
HASHES = ("config_sha256", "weights_sha256", "tokenizer_sha256")


def _ignore_batch(texts: int) -> None:
    """Take progress and do nothing with it."""


class Model:
    """A checkpoint, loaded as its strategies are asked for.

    Args:
        checkpoint: where it is.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: of weights and hidden states.
        threads: CPU threads.
        batch_tokens: token slots in a batch; None is what was measured to run best.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        dtype: Dtype = "float32",
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        check_device_name(device)
        self.checkpoint = checkpoint
        self.device = find_device(device, dtype)
        self.dtype: Dtype = dtype
        self.threads = threads or default_threads()
        self.batch_tokens = batch_tokens
        self._embedder = functools.lru_cache(maxsize=4)(self._load_embedder)

    def embed(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        strategy: Named = "auto",
        layer: Named = -1,
        exclude_special: bool = False,
        max_length: int | None = None,
        stride: int | None = None,
        prompt: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        on_batch: Callable[[int], object] = _ignore_batch,
    ) -> npt.NDArray[np.float32] | dict[str, npt.NDArray[np.float32]]:
        """Embed texts: ``(texts, width)`` float32, or a dictionary of such by column.

        The parameters are those of :func:`bertpool.extract`; with a ``stride`` a text beyond the
        limit is pooled over windows of it, else it is cut. Several strategies or layers give the
        dictionary. ``on_batch`` is called with the number of texts of each batch: the ``update``
        of a tqdm bar will do. Token vectors are for files: see ``extract``.

        Raises:
            PoolingError: the strategy is ``tokens``, unknown, or not to be had.
            BertpoolError: another subclass says what else is wrong.
        """
        if TOKENS in split_names(strategy):
            raise PoolingError(
                "--strategy tokens: embed() gives a vector a text; bertpool.extract() writes token "
                "vectors to a file",
                usage=True,
            )
        if isinstance(texts, str):
            raise TypeError(f"texts: a list of texts wanted, not the one text {texts[:40]!r}")
        embedder = self.embedder(
            strategy=strategy,
            layer=layer,
            exclude_special=exclude_special,
            max_length=max_length,
            stride=stride,
            prompt=prompt,
            normalize=normalize,
            dimensions=dimensions,
        )
        vectors = embed_all(embedder, texts, pairs, on_batch=on_batch)
        return next(iter(vectors.values())) if len(vectors) == 1 else vectors

    def embedder(
        self,
        *,
        strategy: Named = "auto",
        layer: Named = -1,
        exclude_special: bool = False,
        max_length: int | None = None,
        stride: int | None = None,
        prompt: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> Embedder:
        """Return what embeds texts that way, loaded once."""
        return self._embedder(
            split_names(strategy),
            split_names(layer),
            exclude_special,
            max_length,
            stride,
            prompt,
            normalize,
            dimensions,
        )

    def _load_embedder(
        self,
        strategy: tuple[str, ...],
        layer: tuple[str, ...],
        exclude_special: bool,
        max_length: int | None,
        stride: int | None,
        prompt: str | None,
        normalize: bool | None,
        dimensions: int | None,
    ) -> Embedder:
        recipe, reading = make_recipe(
            self.checkpoint,
            strategy=strategy,
            layer=layer,
            exclude_special=exclude_special,
            prompt=prompt,
            normalize=normalize,
            dimensions=dimensions,
        )
        limit = length_limit(self.checkpoint, max_length)
        return self.embedder_for(recipe, reading, limit, stride=stride)

    def embedder_for(
        self, recipe: Recipe, reading: Reading, limit: LengthLimit, *, stride: int | None = None
    ) -> Embedder:
        """Load what embeds texts by a recipe."""
        return load_embedder(
            self.checkpoint,
            load_tokenizer(self.checkpoint, limit, reading, stride=stride),
            recipe,
            device=self.device,
            dtype=self.dtype,
            batch_tokens=self.batch_tokens,
            threads=self.threads,
        )


def load(
    model: str | None = None,
    *,
    revision: str | None = None,
    offline: bool = False,
    device: str = "auto",
    dtype: Dtype = "float32",
    threads: int | None = None,
) -> Model:
    """Find a model to embed texts in memory; None is ``sentence-transformers/all-MiniLM-L6-v2``.

    >>> bertpool.load("./model").embed(["hello"], strategy="mean").shape  # doctest: +SKIP
    (1, 384)

    Raises:
        BertpoolError: a subclass says what is wrong.
    """
    checkpoint = find_checkpoint(model, revision=revision, offline=offline)
    return Model(checkpoint, device=device, dtype=dtype, threads=threads)


def embed_all(
    embedder: Embedder,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    on_batch: Callable[[int], object] = _ignore_batch,
) -> dict[str, npt.NDArray[np.float32]]:
    """Tokenize and encode texts, with their pairs if there are any: each column's vectors.

    Raises:
        ModelError: a vector isn't finite.
    """

    def announce(rows: int, tokens: int) -> None:
        on_batch(rows)

    shape = (len(texts), embedder.recipe.width)
    vectors = {name: np.empty(shape, dtype=np.float32) for name in embedder.recipe.columns}
    for start in range(0, len(texts), WINDOW_ROWS):
        window = slice(start, start + WINDOW_ROWS)
        tokenized = tokenize(
            embedder.tokenizer, texts[window], None if pairs is None else pairs[window]
        )
        embedded = embedder.encode(tokenized, on_batch=announce)
        if not embedded.finite.all():
            row = start + int(np.argmin(embedded.finite))
            raise ModelError(f"text {row}: the vector isn't finite")
        for name, column in embedded.vectors.items():
            vectors[name][window] = column
    return vectors


def find_maker(
    provenance: Mapping[str, Any], *, model: str | None = None, offline: bool = False
) -> Checkpoint:
    """Find the checkpoint that made a file, and prove that it is that one.

    Args:
        provenance: of the file.
        model: where it is; None goes by the name in the provenance, which of a local directory
            isn't a path.
        offline: never reach for the network.

    Raises:
        ModelError: it can't be found, or its hashes differ.
    """
    name, revision = provenance["model"], provenance["revision"]
    if model is None and revision is None and "/" not in name:
        raise ModelError(
            f"made by the local model {name}: say where it is with --model", usage=True
        )
    checkpoint = find_checkpoint(
        model or name, revision=None if model else revision, offline=offline
    )
    found = {
        "config_sha256": checkpoint.config_sha256(),
        "weights_sha256": checkpoint.weights_sha256(),
        "tokenizer_sha256": checkpoint.tokenizer_sha256(),
    }
    for key in HASHES:
        if found[key] != provenance[key]:
            what = key.removesuffix("_sha256")
            raise ModelError(
                f"{checkpoint.name} isn't the model that made the file: its {what} differs"
            )
    return checkpoint


@dataclass(frozen=True)
class Maker:
    """What made a file: the checkpoint, and how it was used."""

    checkpoint: Checkpoint
    recipe: Recipe
    reading: Reading
    limit: LengthLimit
    stride: int | None


def maker_of(
    provenance: Mapping[str, Any], *, model: str | None = None, offline: bool = False
) -> Maker:
    """Recover all that turns a text into the vector that a file has for it.

    The parameters are those of :func:`find_maker`.

    Raises:
        ModelError: the checkpoint can't be found, isn't the one, or the way isn't known.
    """
    try:
        checkpoint = find_maker(provenance, model=model, offline=offline)
        recipe, reading = recipe_of(checkpoint, provenance)
        limit = length_limit(checkpoint, provenance["max_length"])
        return Maker(checkpoint, recipe, reading, limit, provenance["stride"])
    except KeyError as error:
        raise ModelError(f"the file doesn't say what made it: {error} is missing") from error


def recipe_of(checkpoint: Checkpoint, provenance: Mapping[str, Any]) -> tuple[Recipe, Reading]:
    """Recover the recipe that a file was made by, whatever options led to it.

    Raises:
        ModelError: no options of this version do, or the checkpoint's modules are others.
    """
    for recipe, reading in _possible_recipes(checkpoint, provenance):
        made = {
            "columns": list(recipe.columns),
            "strategies": list(recipe.strategies),
            "layers": [list(one) for one in recipe.layers],
            "stages": [str(stage) for stage in recipe.stages],
            "dimensions": recipe.width,
            "include_prompt": reading.include_prompt,
            "lower_case": reading.lower_case,
        }
        if all(provenance[name] == value for name, value in made.items()):
            if checkpoint.modules_sha256(recipe.folders) != provenance["modules_sha256"]:
                raise ModelError(
                    f"{checkpoint.name} isn't the model that made the file: its modules differ"
                )
            return recipe, reading
    raise ModelError("the file was made in a way that this version of bertpool doesn't know")


def _possible_recipes(
    checkpoint: Checkpoint, provenance: Mapping[str, Any]
) -> Iterator[tuple[Recipe, Reading]]:
    """Yield what the options come to that may have led to a file."""
    strategies, columns = provenance["strategies"], provenance["columns"]
    layers = [_layer_name(one, checkpoint.num_layers, columns) for one in provenance["layers"]]
    for strategy, normalize, dimensions in itertools.product(
        ("auto", strategies), (None, True, False), (None, provenance["dimensions"])
    ):
        # What is declared may be refused where the file was made by a named strategy.
        with contextlib.suppress(ModelError, PoolingError):
            yield make_recipe(
                checkpoint,
                strategy=strategy,
                layer=layers,
                exclude_special=provenance["exclude_special"],
                prompt=provenance["prompt"],
                normalize=normalize,
                dimensions=dimensions,
                note=False,
            )


def _layer_name(layers: Sequence[int], num_layers: int, columns: Sequence[str]) -> str:
    """Name layers as ``--layer`` did: several names may mean them, and label columns unlike."""
    fitting = {}
    for name in (*map(str, layers[:1]), f"last-{len(layers)}", "first-last"):
        with contextlib.suppress(ModelError):
            ((label, indices),) = parse_layers([name], num_layers).items()
            if list(indices) == list(layers):
                fitting[label] = name
    used = [
        name for label, name in fitting.items() if any(c.endswith(f"_{label}") for c in columns)
    ]
    return next(iter((*used, *fitting.values(), str(layers[0]))))
