"""The engines that are compared: each turns texts into mean vectors of the same checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
from bertpool.embedder import Embedder, load_embedder
from bertpool.encoder.batches import make_batches
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import length_limit
from bertpool.encoder.recipe import Named, make_recipe
from bertpool.encoder.tokenizer import load_tokenizer

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]
BATCH_TOKENS = 4096  # slots of a padded batch
NAMES = ("input_ids", "attention_mask", "token_type_ids")
ST_BATCH_SIZES = (8, 16, 32, 64, 128)


def load_bertpool(
    directory: Path, *, strategy: Named, dtype: Any, threads: int, layer: Named = -1
) -> Embedder:
    """Load bertpool as its command does."""
    checkpoint = find_checkpoint(str(directory))
    recipe, reading = make_recipe(
        checkpoint,
        strategy=strategy,
        layer=layer,
        exclude_special=False,
        prompt=None,
        normalize=None,
        dimensions=None,
    )
    tokenizer = load_tokenizer(checkpoint, length_limit(checkpoint), reading)
    return load_embedder(
        checkpoint, tokenizer, recipe, device=torch.device("cpu"), dtype=dtype, threads=threads
    )


def bertpool(dtype: str) -> Callable[[Path, int, Sequence[str]], Encode]:
    """Return bertpool in a dtype."""

    def load(directory: Path, threads: int, probe: Sequence[str]) -> Encode:
        embedder = load_bertpool(directory, strategy="mean", dtype=dtype, threads=threads)

        def encode(texts: Sequence[str]) -> Vectors:
            torch.set_num_threads(1)  # its workers are threads of their own
            return embedder.embed(texts).vectors["embedding"]

        return encode

    return load


def sentence_transformers(directory: Path, threads: int, probe: Sequence[str]) -> Encode:
    """Return sentence-transformers at the batch size that is the best on the probe."""
    import time

    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    del model[2]  # normalization

    def seconds(size: int) -> float:
        start = time.perf_counter()
        model.encode(list(probe), batch_size=size)
        return time.perf_counter() - start

    torch.set_num_threads(threads)
    seconds(32)
    best = min(ST_BATCH_SIZES, key=seconds)

    def encode(texts: Sequence[str]) -> Vectors:
        torch.set_num_threads(threads)
        return np.asarray(model.encode(list(texts), batch_size=best), dtype=np.float32)

    return encode


class _Padded:
    """Length-sorted padded batches around an engine's forward, and masked means."""

    def __init__(self, directory: Path, forward: Callable[..., npt.NDArray[np.floating]]) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length_limit(find_checkpoint(str(directory))).tokens)
        self._forward = forward

    def __call__(self, texts: Sequence[str]) -> Vectors:
        ids = [e.ids for e in self._tokenizer.encode_batch_fast(list(texts))]
        rows = list(self._rows(ids))
        vectors = np.empty((len(ids), rows[0][1].shape[1]), dtype=np.float32)
        for batch, found in rows:
            vectors[batch] = found
        return vectors

    def _rows(self, ids: list[list[int]]) -> Iterator[tuple[list[int], Vectors]]:
        for batch in make_batches([len(one) for one in ids], BATCH_TOKENS):
            members = [ids[i] for i in batch.tolist()]
            inputs = np.zeros((len(members), len(members[0])), dtype=np.int64)
            mask = np.zeros_like(inputs)
            for row, one in enumerate(members):
                inputs[row, : len(one)], mask[row, : len(one)] = one, 1
            hidden = self._forward(inputs, mask, np.zeros_like(inputs))
            weights = mask[..., None].astype(np.float32)
            yield batch.tolist(), (hidden * weights).sum(1) / weights.sum(1)


def _torch_model(directory: Path) -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(directory, dtype=torch.float32)
    return model.eval()


class _HiddenStates(torch.nn.Module):
    """The model as exporters like it: positional inputs, one output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        """Return the last hidden states."""
        inputs = dict(zip(NAMES, (input_ids, attention_mask, token_type_ids), strict=True))
        hidden: torch.Tensor = self._model(**inputs).last_hidden_state
        return hidden


def _example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inputs with padding: traced on a mask of ones, the mask would be left out."""
    ids = torch.ones(2, 8, dtype=torch.long)
    mask = ids.clone()
    mask[1, 4:] = 0
    return ids, mask, torch.zeros_like(ids)


def onnx_runtime(directory: Path, threads: int, probe: Sequence[str]) -> Encode:
    """Return ONNX Runtime on an export of the checkpoint."""
    import onnxruntime

    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens", max=512)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            _HiddenStates(_torch_model(directory)),
            _example(),
            path,
            input_names=NAMES,
            dynamic_shapes=({0: batch, 1: tokens},) * len(NAMES),
            dynamo=True,
            verbose=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def forward(*arrays: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
        feed = dict(zip(NAMES, arrays, strict=True))
        hidden: npt.NDArray[np.floating] = session.run(None, feed)[0]
        return hidden

    return _Padded(directory, forward)


def openvino(precision: str) -> Callable[[Path, int, Sequence[str]], Encode]:
    """Return OpenVINO on a conversion of the checkpoint, in a precision."""

    def load(directory: Path, threads: int, probe: Sequence[str]) -> Encode:
        import openvino

        model = openvino.convert_model(
            _HiddenStates(_torch_model(directory)), example_input=_example()
        )
        compiled = openvino.Core().compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": threads,
                "PERFORMANCE_HINT": "THROUGHPUT",
                "NUM_STREAMS": 1,
            },
        )

        def forward(*arrays: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
            hidden: npt.NDArray[np.floating] = compiled(arrays)[0]
            return hidden

        return _Padded(directory, forward)

    return load


def ctranslate2(directory: Path, threads: int, probe: Sequence[str]) -> Encode:
    """Return CTranslate2 on a conversion of the checkpoint."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        converter = ctranslate2.converters.TransformersConverter(str(directory))
        encoder = ctranslate2.Encoder(
            converter.convert(str(Path(folder) / "model")), intra_threads=threads
        )

    def forward(
        ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64], _: object
    ) -> npt.NDArray[np.floating]:
        rows = [row[:length].tolist() for row, length in zip(ids, mask.sum(1), strict=True)]
        output = encoder.forward_batch(rows).last_hidden_state
        hidden: npt.NDArray[np.floating] = np.array(output)
        return hidden

    return _Padded(directory, forward)


ENGINES: dict[str, Callable[[Path, int, Sequence[str]], Encode]] = {
    "bertpool float32": bertpool("float32"),
    "sentence-transformers float32": sentence_transformers,
    "ONNX Runtime float32": onnx_runtime,
    "OpenVINO float32": openvino("f32"),
    "CTranslate2 float32": ctranslate2,
    "bertpool bfloat16": bertpool("bfloat16"),
    "OpenVINO bfloat16": openvino("bf16"),
}
