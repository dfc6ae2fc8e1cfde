"""Which multiples are fast: read off times by width, kept in the cache folder, asked for once."""

import pytest

from deeppruning.latency import multiples
from deeppruning.latency.multiples import WIDTHS, find_multiples, largest_block
from width_helpers import blocked, keep_times


@pytest.mark.parametrize("block", [4, 8, 16])
def test_blocks_show_in_the_times(block):
    assert largest_block([blocked(block)] * 3) == block


def test_no_blocks_show_where_times_follow_the_widths():
    assert largest_block([{width: 1e-3 + 1e-6 * width for width in WIDTHS}]) == 1
    assert largest_block([dict.fromkeys(WIDTHS, 1e-3)]) == 1


def test_blocks_show_beside_what_calls_take_and_a_layer_that_has_none():
    called = {width: seconds + 1e-6 for width, seconds in blocked(16).items()}
    smooth = {width: 1e-9 * width**2 for width in WIDTHS}
    assert largest_block([called, called, smooth]) == 16


def test_what_is_kept_is_not_measured_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_times(block=16)
    monkeypatch.setattr(multiples, "in_turns", None)
    assert set(find_multiples().values()) == {16}


def test_measured_times_are_kept_for_each_processor_as_it_is_restricted(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(multiples, "TURNS", 1)
    found = find_multiples()
    assert set(found.values()) <= {1, 4, 8, 16}
    monkeypatch.setattr(multiples, "in_turns", None)
    assert find_multiples() == found
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    with pytest.raises(TypeError):  # other times are wanted, and nothing is there that measures
        find_multiples()
