"""The layers of the network: how wide they were, and which of them could be cut."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deeppruning.reporting.plots import layers
from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.runs import facts

Genes = np.ndarray[Any, np.dtype[np.int64]]


def layer_genes(kept: Mapping[str, Any]) -> dict[str, Genes]:
    """The genes of each layer's filters; the first runs kept only widths, which tell nothing here."""
    known = {name: genes for name, genes in kept.get(facts.LAYERS.key, {}).items() if isinstance(genes, list)}
    return {name: np.array(genes, dtype=np.int64) for name, genes in known.items()}


def _layer(name: str, genes: Genes) -> dict[str, Any]:
    return {"name": name, "width": len(genes), "fixed": bool((genes < 0).all())}


SECTIONS.add(
    Section(
        "layers",
        lambda source, data: {
            "layers": [_layer(name, genes) for name, genes in layer_genes(source.facts).items()]
        },
        {"layers": layers},
    ),
    place=30,
)
