"""Creates certificates for tests with openssl: an authority, and one certificate for all instances of a cluster.

Use them only on private machines, because the authority's key is stored beside the certificates.
"""

import fcntl
import ipaddress
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Folder in the working directory, with the name from the published benchmarks.
FOLDER = "wse_tls_test"
DAYS = "1"
# Existing certificates are reused if they are valid for at least this many seconds.
MIN_SECONDS = 3600
# Addresses that mean all interfaces; they can't be names in a certificate.
UNSPECIFIED_HOSTS = ("", "0.0.0.0", "::")


class Tls(NamedTuple):
    """Paths of PEM files."""

    cert: str
    key: str
    ca: str


def generate(folder: Path, hosts: Iterable[str]) -> Tls:
    """Returns certificate, key and authority in `folder`; creates them unless existing ones are valid for these hosts.

    Raises:
        RuntimeError: openssl is not installed, or it fails.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    files = Tls(*(str(folder / name) for name in ("server.crt", "server.key", "ca.crt")))
    names = dict.fromkeys(["localhost", "127.0.0.1", *(host.strip("[]") for host in hosts)])
    alternatives = [_alternative(name) for name in names if name not in UNSPECIFIED_HOSTS]
    # Two instances that start at the same time must not create two authorities.
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_valid(files, alternatives):
            _make(folder, alternatives)
    return files


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name).compressed}"
    except ValueError:
        return f"DNS:{name}"


def _is_valid(files: Tls, alternatives: list[str]) -> bool:
    if not all(Path(file).is_file() for file in files):
        return False
    command = ["x509", "-in", files.cert, "-noout", "-checkend", str(MIN_SECONDS)]
    if subprocess.run([_openssl(), *command], capture_output=True, check=False).returncode != 0:
        return False
    output = _run("x509", "-in", files.cert, "-noout", "-ext", "subjectAltName")
    found = {word.strip().replace("IP Address:", "IP:") for line in output.splitlines()[1:] for word in line.split(",")}
    return found.issuperset(alternatives)


def _make(folder: Path, alternatives: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        new = Path(temporary)
        paths = {name: str(new / name) for name in ("ca.key", "ca.crt", "server.key", "server.csr", "server.crt")}
        rsa = ["-newkey", "rsa:2048", "-nodes"]
        authority = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
        _run(
            "req",
            "-x509",
            *rsa,
            "-keyout",
            paths["ca.key"],
            "-out",
            paths["ca.crt"],
            "-days",
            DAYS,
            "-subj",
            "/CN=wse-test-ca",
            *authority,
        )
        _run("req", *rsa, "-keyout", paths["server.key"], "-out", paths["server.csr"], "-subj", "/CN=localhost")
        rules = new / "extensions"
        # Each instance is both a server and a client.
        rules.write_text(f"subjectAltName={','.join(alternatives)}\nextendedKeyUsage=serverAuth,clientAuth\n")
        signed = ["-CA", paths["ca.crt"], "-CAkey", paths["ca.key"], "-CAcreateserial", "-days", DAYS]
        _run("x509", "-req", "-in", paths["server.csr"], *signed, "-extfile", str(rules), "-out", paths["server.crt"])
        for name, path in paths.items():
            Path(path).chmod(0o600)
            Path(path).replace(folder / name)


def _openssl() -> str:
    program = shutil.which("openssl")
    if program is None:
        raise RuntimeError("there is no openssl on PATH: install it, or give --tls-cert, --tls-key and --tls-ca")
    return program


def _run(*arguments: str) -> str:
    done = subprocess.run([_openssl(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
