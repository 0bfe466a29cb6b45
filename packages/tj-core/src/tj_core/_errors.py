"""Everything this project raises derives from :class:`TJError`; each message names the argument and the remedy."""


class TJError(Exception):
    """Base class of every error raised on purpose by the ``tj_*`` packages."""


class SharingError(TJError, BufferError, ValueError):
    """``copy=False`` was asked for, and the memory cannot be shared."""


class UnsupportedDtypeError(TJError, TypeError):
    """The other framework has no dtype that holds these values."""


class UnsupportedKindError(TJError, TypeError):
    """This kind of tensor, array or object cannot cross, whatever its dtype."""


class ValueRangeError(TJError, OverflowError):
    """An integer does not fit the narrower dtype that JAX uses while ``jax_enable_x64`` is off."""


class DeviceError(TJError, ValueError):
    """A device that the other framework does not have, or that does not fit the value."""


class TreeDepthError(TJError, RecursionError):
    """A container is nested too deeply, or contains itself."""


class MissingPackageError(TJError, ImportError):
    """The package that owns this kind of object is not installed; the message says which to install."""


class GradientError(TJError, RuntimeError):
    """A gradient was asked for where none can be given."""


class PrecisionLossWarning(UserWarning):
    """float64 became float32 (or complex128 complex64), as JAX does while ``jax_enable_x64`` is off."""
