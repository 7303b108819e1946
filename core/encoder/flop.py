"""How many operations the layers of an encoder take."""

from __future__ import annotations

from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.recipe import Recipe, hidden_size


def encoder_flop(checkpoint: Checkpoint, recipe: Recipe, tokens: int, pairs: int) -> int:
    """Count the operations of the layers' products: ``8 H^2 + 4 H W + 4 T H`` a token and layer.

    H is the hidden size, W the feed-forward layer's (4 H where the config doesn't say), T the
    text's length; layers beyond the last one wanted aren't run.

    Args:
        checkpoint: whose config gives the sizes.
        recipe: which layers are wanted.
        tokens: that the model sees.
        pairs: of tokens that attend to one another: the sum of squared lengths.
    """
    hidden = hidden_size(checkpoint)
    wide = checkpoint.config.get("intermediate_size") or 4 * hidden
    layers = max(0, *(layers[-1] for layers in recipe.layers), 0)
    return layers * ((8 * hidden**2 + 4 * hidden * wide) * tokens + 4 * hidden * pairs)
