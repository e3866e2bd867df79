#!/usr/bin/env python3
"""Hosts to test on: network namespaces with an overlay of `/` as root file system and an sshd of their own.

Each host is a process tree of its own (mount, pid, network, host name). What is written on it lies in memory, and when
its first process ends everything of it is gone: files, mounts, network, programs. It has no route but the one to this
machine. What changes here below `/` after a host has started, the host may not see.
The folder of a set of hosts holds an inventory for Ansible (`inventory.json`), the client's key and `known_hosts`.
Needs root, iproute2, openssh-server and sudo; `check` says what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

USER = "aerie-deployer"
INVENTORY = "inventory.json"
TOOLS = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "sudo", "useradd", "/usr/sbin/sshd")
# For benchmarking of network devices, so no real network is hidden by them (RFC 2544).
NETWORK = ipaddress.ip_network("198.18.0.0/15")
# The first process of a host: builds its root, then reaps what ends, and goes after two hours whatever happens.
INIT = r"""
set -euo pipefail
folder=$1 size=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o "size=$size,mode=755" host "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
# metacopy: a hard link to a file below costs an inode and not its bytes.
options="lowerdir=/,upperdir=$folder/upper,workdir=$folder/work"
mount -t overlay -o "$options,metacopy=on,redirect_dir=on" host "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
for place in dev/shm run tmp; do mount -t tmpfs -o mode=1777 host "$place"; done
chmod 755 run
for mounted; do
  place=${mounted%%=*}; mkdir -p "./$place"
  mount -t tmpfs -o "size=${mounted#*=},mode=755" host "./$place"
done
pivot_root . .
umount -l .
cd /
mkdir -p /run/sshd /run/aerie-host
touch /run/aerie-host/ready
end=$((SECONDS + 7200))
while [ $SECONDS -lt $end ]; do sleep 60 & wait $!; done
"""
SSHD = """
Port 22
HostKey /etc/ssh/host_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UsePAM no
Subsystem sftp internal-sftp
"""


def missing() -> list[str]:
    """What stands in the way of making hosts here."""
    found = [] if os.geteuid() == 0 else ["root"]
    return found + [name for name in TOOLS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]


def quietly(*command: str, text: str | None = None) -> str:
    """Run a command; its output. Raises `RuntimeError` with what it said."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Host:
    """One host of a folder, known by its first process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.label = folder, name, name.replace("_", "-")
        self.record = folder / f"{name}.json"

    def known(self) -> dict[str, Any]:
        """What was recorded at its start; empty when there is none."""
        try:
            value: dict[str, Any] = json.loads(self.record.read_text())
        except (OSError, ValueError):
            return {}
        return value

    def run(self, script: str, text: str | None = None) -> str:
        """Run a shell script on the host as root, not over the network."""
        spaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--wd")
        return quietly("nsenter", "--target", str(self.known()["pid"]), *spaces, "sh", "-euc", script, text=text)

    def start(self, size: str, mounts: list[str]) -> None:
        """Make the host, without an sshd that runs."""
        place = self.folder / self.name
        place.mkdir()
        spaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")
        command = ["unshare", *spaces, "bash", "-c", INIT, "init", str(place), size, *mounts]
        with (self.folder / f"{self.name}.log").open("wb") as log:
            outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline, pid = time.monotonic() + 20, 0
        while not pid or not Path(f"/proc/{pid}/root/run/aerie-host/ready").exists():
            if outer.poll() is not None or time.monotonic() > deadline:
                outer.kill()
                raise RuntimeError(f"{self.name} did not start: {(self.folder / f'{self.name}.log').read_text()}")
            with contextlib.suppress(OSError, ValueError):
                pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
            time.sleep(0.05)
        known = {"pid": pid, "started": started(pid)}
        # Written first, so that whatever fails from here on, the host can be removed.
        self.record.write_text(json.dumps(known))
        self.record.write_text(json.dumps({**known, "address": self.connect(pid)}))
        self.furnish()

    def connect(self, pid: int) -> str:
        """Make a pair of interfaces between this machine and the host; the host's address."""
        taken = quietly("ip", "-o", "-4", "address")
        nets = (net for net in NETWORK.subnets(new_prefix=30) if f" {net.network_address + 1}/30" not in taken)
        here, there = (str(one) for one in next(nets).hosts())
        link = f"aerie{pid}"
        quietly("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        quietly("ip", "address", "add", f"{here}/30", "dev", link)
        quietly("ip", "link", "set", link, "up")
        script = f"ip link set lo up; ip address add {there}/30 dev eth0; ip link set eth0 up; hostname {self.label}"
        enter = ("nsenter", "--target", str(pid), "--net", "--uts", "sh", "-euc")
        quietly(*enter, script)
        return there

    def furnish(self) -> None:
        """A user who may become root, keys, and the settings of sshd."""
        key = (self.folder / "id_ed25519.pub").read_text()
        self.run(f"""
            useradd --create-home --shell /bin/bash --password '*' {USER}
            echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER}
            chmod 440 /etc/sudoers.d/{USER}
            echo '127.0.1.1 {self.label}' >>/etc/hosts
            install -d -m 700 -o {USER} -g {USER} /home/{USER}/.ssh
            cat >/home/{USER}/.ssh/authorized_keys
            chown {USER}: /home/{USER}/.ssh/authorized_keys
            ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host_key
        """, key)  # fmt: skip
        self.run("cat >/etc/ssh/aerie_sshd_config", SSHD)
        public = self.run("cat /etc/ssh/host_key.pub").split()
        with (self.folder / "known_hosts").open("a") as known:
            known.write(f"{self.known()['address']} {public[0]} {public[1]}\n")

    def sshd(self, up: bool) -> None:
        """Start sshd, or end it with its sessions, as a crash or a firewall would: jobs of the host go on."""
        if up:
            self.run("/usr/sbin/sshd -f /etc/ssh/aerie_sshd_config -E /var/log/aerie_sshd.log")
            return
        # The host has its own process ids: every sshd seen there is the host's.
        self.run("""
            for entry in /proc/[0-9]*; do
              [ "$(cat $entry/comm 2>/dev/null)" != sshd ] || kill -9 ${entry#/proc/} 2>/dev/null || :  # just ended
            done
        """)

    def remove(self) -> None:
        """End the host's first process; everything of it goes with it."""
        known = self.known()
        # The start time proves that the number was not given to another process since.
        if known and started(known["pid"]) == known["started"]:
            os.kill(known["pid"], signal.SIGKILL)
            deadline = time.monotonic() + 20
            while started(known["pid"]) == known["started"] and time.monotonic() < deadline:
                time.sleep(0.05)


def started(pid: int) -> int:
    """Start time of a process in clock ticks, 0 when it is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def create(folder: Path, wanted: list[str]) -> None:
    """Make hosts, each `name[,nosshd][,size=8g][,/path=64m]`: a path gets a file system of that size."""
    folder.mkdir(parents=True)
    quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id_ed25519"))
    (folder / "known_hosts").touch()
    try:
        for spec in wanted:
            name, *options = spec.split(",")
            host = Host(folder, name)
            sizes = [one[5:] for one in options if one.startswith("size=")]
            host.start(sizes[0] if sizes else "12g", [one for one in options if one.startswith("/")])
            if "nosshd" not in options:
                host.sshd(up=True)
    except BaseException:
        remove(folder)
        raise
    hosts = {spec.split(",")[0]: inventory(folder, spec.split(",")[0]) for spec in wanted}
    (folder / INVENTORY).write_text(json.dumps({"all": {"hosts": hosts}}, indent=1))


def inventory(folder: Path, name: str) -> dict[str, Any]:
    """Ansible's variables for a host: host keys are checked against what its maker wrote down."""
    options = {"UserKnownHostsFile": str(folder / "known_hosts"), "GlobalKnownHostsFile": "/dev/null"}
    options.update(StrictHostKeyChecking="yes", IdentitiesOnly="yes", PasswordAuthentication="no", ConnectTimeout="5")
    return {
        "ansible_host": Host(folder, name).known()["address"],
        "ansible_user": USER,
        "ansible_become": True,
        "ansible_ssh_private_key_file": str(folder / "id_ed25519"),
        "ansible_ssh_common_args": " ".join(f"-o {key}={value}" for key, value in options.items()),
        "ansible_control_path_dir": str(folder / "cp"),
    }


def remove(folder: Path) -> None:
    """End all hosts of a folder, the connections that are kept open to them, and the folder."""
    if not folder.is_dir():
        return
    for path in sorted((folder / "cp").glob("*")):
        subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={path}", "host"], capture_output=True, check=False)
    for record in sorted(set(folder.glob("*.json")) - {folder / INVENTORY}):
        Host(folder, record.stem).remove()
    shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["check", "create", "remove", "sshd-up", "sshd-down", "run"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("hosts", nargs="*", help=f"create: {create.__doc__}; run: a host and a shell script")
    given = parser.parse_args(arguments)
    lacking = missing()
    if given.action == "check":
        print(f"skipped: needs {', '.join(lacking)}" if lacking else "", end="")
        return 0
    if not given.folder or lacking:
        parser.error(f"needs {', '.join(lacking) or 'a folder'}")
    if given.action == "create":
        create(given.folder, given.hosts)
    elif given.action == "remove":
        remove(given.folder)
    elif given.action == "run":
        print(Host(given.folder, given.hosts[0]).run(given.hosts[1]), end="")
    else:
        for name in given.hosts:
            Host(given.folder, name).sshd(up=given.action == "sshd-up")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
