"""`nnefc cache`: shows or empties the cache of libraries."""

from __future__ import annotations

import click

from nnefc.cli.tables import columns
from nnefc.support.output_files import readable_bytes

__all__ = ["cached_libraries"]


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
def cached_libraries(action: str) -> None:
    """Show the cache of compiled libraries, or remove all libraries from it.

    Sessions keep the library of each model that they compile: in the folder that the environment variable NNEFC_CACHE
    names, or in the user's folder of caches; NNEFC_CACHE=0 switches the cache off. The libraries that were not used
    for the longest time are removed when all together exceed NNEFC_CACHE_SIZE, which is 4G by default.
    """
    from nnefc.driver.cache import library_cache  # NumPy comes with it

    cache = library_cache()
    if cache is None:
        click.echo("the cache is off")
        return
    files = cache.clear() if action == "clear" else cache.files()
    count = sum(file.path.suffix != ".json" for file in files)
    size = readable_bytes(sum(file.bytes for file in files))
    rows = [
        ("folder", str(cache.folder)),
        ("removed" if action == "clear" else "libraries", f"{count}, {size}"),
        ("limit", readable_bytes(cache.max_bytes)),
    ]
    click.echo("\n".join(columns(rows)))
