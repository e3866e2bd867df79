#!/usr/bin/env bash
# Run tests/ml_environment with the Python of an ML environment. That has no pytest: the controller's is appended to its path, so that
# the environment's own packages come first. AERIE_TEST_ENV names the environment, else var/ml-env is taken.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment=${AERIE_TEST_ENV:-${AERIE_VAR:-$top/var}/ml-env}
if [ ! -x "$environment/bin/python" ]; then
  echo "tests/ml_environment: there is no ML environment at $environment (make host-tests makes it, AERIE_TEST_ENV names another)" >&2
  exit 2
fi
site=$("$top/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$top"
# Plugins of the controller's pytest belong to the controller.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" -c 'import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main())' \
  "$site" -p no:cacheprovider -o testpaths=tests/ml_environment "$@"
