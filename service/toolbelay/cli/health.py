"""`toolbelay health`."""

from __future__ import annotations

import click

from toolbelay.cli.exits import UNAVAILABLE, CommandError
from toolbelay.cli.options import address_option


@click.command()
@address_option
@click.option("--live", is_flag=True, help="Ask whether the process runs rather than whether it is ready.")
@click.option("--timeout", default=3.0, show_default=True, type=click.FloatRange(0.1, 60), help="Seconds.")
def health(*, address: str | None, live: bool, timeout: float) -> None:
    """Probe a running service: exit code 0 when it is ready, 4 when it is not or cannot be reached."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from toolbelay.cli.rpc import channel_to, target_of

    target = target_of(address)
    request = health_pb2.HealthCheckRequest(service="toolbelay.live" if live else "")
    with channel_to(target) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
        except grpc.RpcError as error:
            raise CommandError(f"{target}: {error.code().name}", code=UNAVAILABLE) from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise CommandError(f"{target}: not ready", code=UNAVAILABLE)
    click.echo("live" if live else "ready")
