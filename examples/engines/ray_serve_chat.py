"""Ray Serve: a language model in replicas on the nodes of a cluster, by OpenAI's interface, with streams.

nnefc compile model.gguf -o chat.so --context 4096 --sequences 8
python examples/engines/ray_serve_chat.py chat.so --replicas 2                 # http://127.0.0.1:8000/v1
python examples/engines/ray_serve_chat.py chat.so --replicas 4 --address 10.0.0.1:6379 --host 0.0.0.0
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from pathlib import Path

import ray
import replica
from ray import cloudpickle, serve
from ray_data import connect
from starlette.requests import Request
from starlette.responses import StreamingResponse

cloudpickle.register_pickle_by_value(replica)  # this file and that one are on the machine of the program alone


@serve.deployment(max_ongoing_requests=64, health_check_period_s=5)
class Chat:
    """A replica: a server of one model, to which the requests of Ray's proxies are passed on."""

    def __init__(self, library: list[ray.ObjectRef], name: str, threads: int) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(ray.get(library[0]))
            file.flush()
            self.replica = replica.Replica({name: Path(file.name)}, threads)

    async def __call__(self, request: Request) -> StreamingResponse:
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        answer = await self.replica.ask(request.method, path, request.headers, await request.body())
        return StreamingResponse(answer.parts, answer.status, dict(answer.headers))

    async def check_health(self) -> None:
        """Fails where the server answers no more: Ray starts another replica then."""
        answer = await self.replica.ask("GET", "/health", {}, b"")
        await anext(answer.parts)
        if answer.status != 200:
            raise RuntimeError(f"the server answers {answer.status}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path, help="a language model, compiled with --sequences")
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS") or None, help="of the head node, or auto")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each replica, and the cores that it asks for")
    parser.add_argument("--host", default="127.0.0.1", help="where the proxies listen, one on each node; 0.0.0.0: all")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    connect(given.address)
    serve.start(proxy_location="EveryNode", http_options={"host": given.host, "port": given.port})
    options = Chat.options(num_replicas=given.replicas, ray_actor_options={"num_cpus": given.threads})
    library = ray.put(given.library.read_bytes())
    serve.run(options.bind([library], given.library.stem, given.threads), route_prefix="/")
    print(f"listening: http://{given.host}:{given.port}/v1", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
