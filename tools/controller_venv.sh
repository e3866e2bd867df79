#!/usr/bin/env bash
# Make .venv, the controller's Python environment, from requirements.txt (hashes required), with the first Python 3.10 to 3.13
# that really runs. Does nothing when .venv is complete for these requirements in this place. PYTHON=/path/python picks one.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$top/.venv
stamp=$venv/.complete
# The path is part of the stamp: the programs in a moved environment point at a Python that is gone.
wanted="$(sha256sum "$top/requirements.txt" | cut -d' ' -f1) $venv"

complete() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python" -c '' 2>/dev/null; }
complete && exit 0

# Two makes at the same moment: the second waits and then finds it done.
exec 9>"$top/.venv.lock"
flock 9
complete && exit 0

# Answers with nothing when fit, else with the reason. A pyenv shim of an inactive version fails here, as does a Debian
# Python without the venv package.
unfit() {
  "$1" - 2>/dev/null <<'PROBE' || echo "does not run"
import sys
if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    print("is Python %d.%d: 3.10 to 3.13 are supported" % sys.version_info[:2])
else:
    try:
        import ensurepip, ssl, venv
    except ImportError as error:
        print("has no module %s: install the package python%d.%d-venv" % ((error.name,) + sys.version_info[:2]))
PROBE
}

if [ -n "${PYTHON:-}" ]; then
  candidates=("$PYTHON")
else
  mapfile -t candidates < <(
    for name in python3.12 python3.11 python3.13 python3.10 python3 python; do
      type -ap "$name" || :  # not on PATH: the next name
    done
    for version in 3.12 3.11 3.13 3.10; do
      ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python3 2>/dev/null || :  # no pyenv here
    done
  )
fi

python=
tried=
for candidate in "${candidates[@]}"; do
  reason=$(unfit "$candidate")
  if [ -z "$reason" ]; then
    python=$candidate
    break
  fi
  tried+="  $candidate $reason"$'\n'
done
if [ -z "$python" ]; then
  printf 'No usable Python for the controller: it needs 3.10, 3.11, 3.12 or 3.13 with the module venv.\n%s' "${tried:-  nothing found on PATH$'\n'}" >&2
  printf 'Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python3 ...\n' >&2
  exit 2
fi

# The one that stands on PATH first may be .venv's own, which goes in the next step: take the Python below it.
python=$("$python" -c 'import sys; print(getattr(sys, "_base_executable", "") or sys.executable)')

echo "controller: .venv from requirements.txt with $("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])')"
rm -rf "$venv"
"$python" -m venv "$venv"
# Index, mirror, proxy and certificate settings of the user's pip hold here; --require-hashes judges whatever they bring.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: \
  --require-hashes --requirement "$top/requirements.txt"
printf '%s\n' "$wanted" >"$stamp"
