"""The products of columns that a refit sums up, where they are computed in blocks."""

import pytest
import torch

from deeppruning.refitting.solve import WIDE, products_of_columns


@pytest.mark.parametrize("columns", [WIDE - 1, WIDE, WIDE + 3])
def test_products_in_blocks_are_the_products(columns: int):
    rows = torch.randn(2, 40, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    products = products_of_columns(rows)
    torch.testing.assert_close(products, rows.mT @ rows)
