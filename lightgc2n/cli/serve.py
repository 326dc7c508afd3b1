"""`lightgc2n serve`: serve a bundle over HTTP, with a page that shows accounts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json


def serve(
    bundle: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLE", help="A bundle (made by export), or a link to one, which may change while serving."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; other machines need a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 1,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="A store of events (made by store init): a path, or postgresql://USER@HOST/DATABASE. Without it the "
            "service is read-only.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="API keys, one per line; scopes may stand before one."),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log", metavar="FILE", help="Append a line for each write and erasure; by default to the log."
        ),
    ] = None,
    listen_without_key: Annotated[
        bool,
        typer.Option("--listen-without-key", help="Serve other machines without a key; restrict access elsewhere."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", exists=True, dir_okay=False, help="A report.html that the page shows."
        ),
    ] = None,
    titles: Annotated[
        Path | None,
        typer.Option(
            "--titles",
            metavar="FILE",
            help="Item titles in place of the bundle's: a table, or id, tab and title per line.",
        ),
    ] = None,
    log_ids: Annotated[bool, typer.Option("--log-ids", help="Write account and item ids to the logs.")] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Allow requests of pages from this origin; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Accept this host name too; may be repeated. '*' accepts all.",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option("--max-body", metavar="BYTES", min=1, help="Maximum request body.")] = 2**21,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Maximum length of a list.")] = 1000,
    max_history: Annotated[int, typer.Option("--max-history", min=1, help="Maximum events in a history.")] = 5000,
    max_requests: Annotated[
        int, typer.Option("--max-requests", min=1, help="Maximum concurrent requests per worker; more get 429.")
    ] = 256,
    seconds: Annotated[float, typer.Option(help="Time for a request to arrive and its response to start.")] = 10.0,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="Any limit of docs/serving.md; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Serve a bundle over HTTP, with a page at /. SIGTERM and Ctrl-C stop it after pending requests are answered."""
    from lightgc2n.config import read_settings
    from lightgc2n.serving.audit import refuse_foreign_file
    from lightgc2n.serving.keys import read_keys
    from lightgc2n.serving.settings import Limits, ServiceSettings, parse_limits, refuse_missing_key
    from lightgc2n.serving.workers import address, reserve
    from lightgc2n.serving.workers import serve as run

    given: dict[str, Any] = {"max_body": max_body, "max_k": max_k, "max_history": max_history}
    given |= {"max_requests": max_requests, "seconds": seconds, **parse_limits(limit or ())}
    limits = read_settings(Limits, given, "serve --limit")
    settings = ServiceSettings(
        bundle=bundle,
        host=host,
        port=port,
        workers=workers,
        keys=read_keys(api_key_file) if api_key_file else {},
        key_file=api_key_file,
        audit_log=audit_log,
        listen_without_key=listen_without_key,
        store=store,
        report=report,
        titles=titles,
        log_ids=log_ids,
        cors=tuple(cors or ()),
        allow_hosts=tuple(allow_host or ()),
        limits=limits,
    )
    refuse_missing_key(settings)
    if audit_log is not None:
        refuse_foreign_file(audit_log)
    with reserve(settings) as listening:

        def ready() -> None:
            if json:
                print_json({"address": address(listening), "bundle": str(bundle), "workers": workers})
            else:
                typer.echo(f"serving {bundle} at {address(listening)}; stop with Ctrl-C")

        run(settings, listening, ready)
