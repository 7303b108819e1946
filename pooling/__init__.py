"""Token vectors -> one vector: masks and strategies. Knows no file, no tokenizer, no terminal."""

from bertpool.pooling.strategies import AUTO, STRATEGIES, Strategy, pool, pool_windows
from bertpool.pooling.token_embeddings import TokenEmbeddings

__all__ = ["AUTO", "STRATEGIES", "Strategy", "TokenEmbeddings", "pool", "pool_windows"]
