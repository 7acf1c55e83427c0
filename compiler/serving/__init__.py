"""Serves compiled networks by the Open Inference Protocol (KServe v2) over HTTP and gRPC.

A front end, `rest.py` for HTTP or `rpc.py` for gRPC, reads a request. `repository.py` finds the network, `served.py`
checks shapes and types against the library, `values.py` converts the tensors to arrays, and `runs.py` queues them for
a free session, in a batch with other requests if the network allows it. A request that cannot be answered raises
`Refused` (`failures.py`), which each front end translates to a status of its protocol.

Needs the extra `serve`: pip install 'nnefc[serve]', or 'nnefc-runtime[serve]' without the compiler.
"""
