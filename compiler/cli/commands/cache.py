"""`nnefc cache`: shows or empties the caches of libraries and kernels."""

from __future__ import annotations

import click

from nnefc.cli.tables import columns
from nnefc.support.output_files import readable_bytes

__all__ = ["cached_libraries"]


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
def cached_libraries(action: str) -> None:
    """Show the caches of compiled libraries and kernels, or remove all that is in them.

    Sessions keep the library of each model that they compile, and every compilation keeps its kernels, which other
    networks have in common with it: in the folder that the environment variable NNEFC_CACHE names, or in the user's
    folder of caches; NNEFC_CACHE=0 switches both caches off. What was not used for the longest time is removed when
    libraries exceed NNEFC_CACHE_SIZE, which is 4G by default, or kernels an eighth of it.
    """
    from nnefc.driver.caching.user_cache import kernel_files, library_cache  # NumPy comes with it

    rows = []
    for what, cache in (("libraries", library_cache()), ("kernels", kernel_files())):
        if cache is None:
            click.echo("the cache is off")
            return
        files = cache.clear() if action == "clear" else cache.files()
        count = sum(file.path.suffix != ".json" for file in files)
        size = readable_bytes(sum(file.bytes for file in files))
        done = "removed" if action == "clear" else f"of {readable_bytes(cache.max_bytes)}"
        rows.append((what, f"{count},", size, done, f"in {cache.folder}"))
    click.echo("\n".join(columns(rows)))
