"""A WebSocket engine in Rust, driven from Python.

Everything is in the compiled module `_wse_accel`, whose contract is `_wse_accel.pyi`; this package only gives it its
public name.
"""

from wse_server._wse_accel import Message, MessageBatch, RustWSEServer, __version__

__all__ = ["Message", "MessageBatch", "RustWSEServer", "__version__"]
