"""What `servewright deploy` reaches, as a deploy of pyinfra: for a comparison, not for use. Run by pyinfra itself."""

from pyinfra import host
from pyinfra.facts.server import Command
from pyinfra.operations import files, server, systemd

data = host.data
release = f"/etc/servewright/{data.service}/releases/1"
unit = f"{data.service}.service"

server.user(
    name="Make the user", user=data.user, system=True, ensure_home=False, home="/nonexistent", shell="/usr/sbin/nologin"
)
files.directory(name="Make the folder of the release", path=release, mode="755")
files.directory(name="Make the folder of the helper", path="/usr/local/lib/servewright", mode="755")
files.put(
    name="Copy the helper that the unit calls",
    src=f"{data.files}/host.pyz",
    dest="/usr/local/lib/servewright/host.pyz",
    mode="755",
)
environment = files.template(
    name="Write the environment", src=f"{data.files}/environment", dest=f"{release}/environment", mode="600"
)
written = files.template(
    name="Write the unit", src=f"{data.files}/{unit}", dest=f"/etc/systemd/system/{unit}", mode="644"
)
changed = environment.will_change or written.will_change
systemd.service(
    name="Have it enabled and started",
    service=unit,
    enabled=True,
    running=True,
    restarted=changed,
    daemon_reload=changed,
)

# A fact and not an operation: pyinfra counts every command of an operation as a change.
ask = "import urllib.request as r; [print(r.urlopen(u).read().decode()) for u in ('{0}/health', '{0}/v1/models')]"
answer = host.get_fact(Command, f'python3 -c "{ask.format(data.url)}"')
if data.model not in (answer or ""):
    raise ValueError(f"{host.name} does not serve {data.model}")
