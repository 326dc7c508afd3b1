"""Files that somebody else may change: the folder of the keys, and the bundle after it was loaded."""

import os
import shutil
from pathlib import Path

import pytest

from lightgc2n.errors import SettingError
from lightgc2n.serving.keys import read_keys
from tests.export.town import bundle_of
from tests.serving.running import running


def test_a_key_file_in_a_folder_that_others_may_write(tmp_path: Path) -> None:
    """They could put another file in its place. In a folder with the sticky bit only the owner of a file can."""
    path = tmp_path / "shared" / "private" / "keys"
    path.parent.mkdir(parents=True)
    path.write_text("a-key-of-enough-letters\n")
    path.chmod(0o600)
    for mode in (0o777, 0o770, 0o702):
        path.parents[1].chmod(mode)
        with pytest.raises(SettingError, match=rf"keys: expected .* found {path.parents[1]} with mode 0{mode:o}.*go-w"):
            read_keys(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(SettingError, match="others could replace the file"):
        read_keys(link)
    for mode in (0o755, 0o1777):
        path.parents[1].chmod(mode)
        assert len(read_keys(path)) == len(read_keys(link)) == 1


@pytest.mark.parametrize("name", ["items.txt", "config.json", "people/finder.json"])
def test_a_link_put_into_a_bundle_after_loading_is_not_followed(name: str, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("lightgc2n"), tmp_path / "bundle"))
    (tmp_path / "secret").write_text("a key of mine")
    with running(bundle, watch_seconds=3600.0) as service:
        client = service.client()
        whole = (bundle / name).read_bytes()
        reply = client.get(f"/device/{name}")
        assert (reply.status, reply.body, reply.headers["content-length"]) == (200, whole, str(len(whole)))
        same = {"If-None-Match": reply.headers["etag"]}
        assert client.ask("GET", f"/device/{name}", None, same).status == 304
        head = client.ask("HEAD", f"/device/{name}")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(whole)))
        (bundle / name).unlink()
        (bundle / name).symlink_to(tmp_path / "secret")
        assert client.get(f"/device/{name}").status == 404
        (bundle / name).unlink()
        os.mkfifo(bundle / name)
        assert client.get(f"/device/{name}").status == 404
