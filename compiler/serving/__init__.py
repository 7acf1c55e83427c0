"""Serves compiled networks by the Open Inference Protocol (KServe v2) over HTTP and gRPC.

A request goes this way: `tail.py` or `rpc.py` reads it, `repository.py` knows the network, `served.py` checks shapes
and types against the library, `values.py` makes arrays of the tensors, and `runs.py` lets them wait for a free session,
with others in one batch if that is wanted. What is not answered is a `Refused` (`failures.py`), which both front ends
translate.

Needs the extra `serve`: pip install 'nnefc[serve]', or 'nnefc-runtime[serve]' without the compiler.
"""
