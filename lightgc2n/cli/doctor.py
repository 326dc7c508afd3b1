"""`lightgc2n doctor`: show installed packages, whether they work, and the devices."""

import typer
from rich.table import Table

from lightgc2n.cli.options import ClusterAddress, Json
from lightgc2n.cli.printing import print_json, print_table


def doctor(cluster: ClusterAddress = None, json: Json = False) -> None:
    """Show which packages are installed, whether they work, and which devices are available; or those of a cluster."""
    if cluster is not None:
        _show_cluster(cluster, json)
        return
    from lightgc2n.diagnosis import diagnose

    diagnosis = diagnose()
    if json:
        print_json(diagnosis)
        return
    version = f"lightgc2n {diagnosis['lightgc2n']}, Python {diagnosis['python']}"
    typer.echo(f"{version}, {diagnosis['system']}, {diagnosis['cores']} cores")
    table = Table(title="extras")
    for heading in ("extra", "package", "needs", "installed", "works"):
        table.add_column(heading)
    for extra, packages in diagnosis["extras"].items():
        for package, facts in packages.items():
            works = "yes" if facts["works"] else facts["problem"] or "no"
            table.add_row(extra, package, facts["needs"], facts["version"] or "-", works)
    print_table(table)
    for device in diagnosis["devices"]:
        typer.echo(f"device {device['name']}: {device['what']}: {'works' if device['works'] else device['problem']}")
    for advice in diagnosis["advice"]:
        typer.echo(advice)


def _show_cluster(address: str, json: bool) -> None:
    """Show the nodes of a cluster, and where their versions differ from this machine's."""
    from lightgc2n.cluster.connect import connect, describe

    with connect(address, check=False) as cluster:
        facts = describe(cluster)
    if json:
        print_json(facts)
        return
    table = Table(title=f"cluster {address}", title_justify="left")
    for heading in ("node", "CPUs", "GPUs", "versions"):
        table.add_column(heading, justify="right" if heading.endswith("s") and len(heading) < 5 else "left")
    for node in facts["nodes"]:
        versions = "this machine" if node["home"] else node["problem"] or "the same"
        table.add_row(node["node"], f"{node['cpus']:g}", f"{node['gpus']:g}", versions)
    print_table(table)
    here = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    typer.echo(f"this machine has {here}; tokens are {'required' if facts['token'] else 'not required'}")
