"""The aten operations the channel graph knows, by what they do to channels; all others freeze them."""


def _names(text: str) -> frozenset[str]:
    """Names of operations from a text."""
    return frozenset(text.split())


# Products of matrices: linear layers where one side is a parameter.
MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear")

# Operations that make new channels from all the channels they read.
PRODUCTS = ("convolution", *MATRIX_PRODUCTS)

BATCH_NORMS = _names(
    """
    native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update
    """
)

ATTENTION_PREFIX = "_scaled_dot_product"

# Operations that only move elements: the same operation is run on the labels.
MOVES = _names(
    """
    view _unsafe_view reshape _reshape_alias permute transpose t slice select split split_with_sizes
    unbind chunk cat stack expand unsqueeze squeeze index_select index
    flip rot90 roll repeat repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle unfold im2col narrow movedim diagonal constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d gather
    """
)

# Operations that pass their input on unchanged.
SAME = _names("clone alias detach contiguous lift_fresh")

# Other names under which torch runs a view, depending on memory layout.
VIEWS = _names("view _unsafe_view reshape _reshape_alias")

# Moves that have no size written into them: they cannot go wrong by a cut.
REARRANGING = _names("t transpose permute movedim unsqueeze squeeze flip")

# Moves that take some positions and leave the others behind.
PICKING = _names("select unbind slice split split_with_sizes chunk narrow index index_select diagonal gather")

# Operations that treat each channel's map separately and keep the channel dimension.
SPATIAL_PREFIXES = (
    "max_pool",
    "avg_pool",
    "adaptive_avg_pool",
    "_adaptive_avg_pool",
    "adaptive_max_pool",
    "fractional_max_pool",
    "upsample_",
    "_upsample_",
)

# Maps that are all sampled at the same places; maps of maxima that are put back in their places.
SAMPLERS = _names("grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler")
UNPOOLINGS = _names("max_unpool2d max_unpool3d")

# Operations along given dimensions: harmless to channels that run along another one.
ALONG = _names(
    """
    mean sum amax amin max min var std var_mean std_mean logsumexp linalg_vector_norm norm prod
    _softmax _log_softmax cumsum cumprod argmax argmin any all sort topk median
    """
)

# Tensors made in the forward code with the same values for every channel. Ones as wide as an activation are
# not held at zero where that is: their sum counts all channels.
FACTORIES = _names(
    """
    zeros ones full empty rand randn new_zeros new_ones new_full new_empty empty_strided
    new_empty_strided scalar_tensor ones_like full_like
    """
)

# The same, as wide as another tensor.
LIKENESSES = _names("zeros_like empty_like rand_like randn_like")

# Numbers that count positions: they mean other channels once some are gone.
POSITIONS = _names("arange linspace logspace eye tril_indices triu_indices randperm")

# Element-wise operations that torch does not tag as such, in-place fillings among them.
ELEMENTWISE = _names(
    """
    native_dropout _to_copy _prelu_kernel masked_fill lerp where copy hardswish log_sigmoid_forward
    gelu mish rrelu_with_noise floor_divide subtract multiply divide
    bernoulli uniform normal exponential fill zero
    """
)

# Operations that depend on memory layout, not on the network: a thin copy may need more or fewer.
LAYOUT = _names("clone contiguous alias detach _to_copy lift_fresh empty _reshape_alias")
