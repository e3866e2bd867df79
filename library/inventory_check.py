# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name, which does all the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Refuse a request that cannot be run, before any connection
description:
  - Runs on the controller. All problems come in one message: tags that stand nowhere, no host left, values missing,
    variables that nothing reads.
options:
  group: {description: Group that the playbooks run on, type: str, required: true}
  tags: {description: All tags of the playbooks, type: list, elements: str, required: true}
  stacks: {description: Folder of the stack files, type: path, required: true}
  roles: {description: Folder of the roles; their argument specifications say what is known, type: path, required: true}
  playbooks:
    description: Folder of the playbooks; the variables that they read without defining them are known too.
    type: path
    required: true
  prefixes:
    description:
      - A variable of a host whose name begins with one of these, or with a role's name, is refused unless it is known.
      - Any other is refused when it is nearly the name of a known one.
    type: list
    elements: str
    required: true
  required:
    description:
      - Variables that each host must have, with what they stand for. A local connection needs no C(ansible_host).
    type: dict
    required: true
attributes:
  check_mode: {support: full, description: Reads only}
  diff_mode: {support: none, description: Changes nothing}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Refuse what cannot be run
  inventory_check:
    group: extraction_hosts
    tags: [provision, verify]
    stacks: /srv/aerie/stacks
    roles: /srv/aerie/roles
    playbooks: /srv/aerie/playbooks
    prefixes: [aerie_]
    required: {ml_env_path: where the Python environment shall be}
"""

RETURN = r"""
aerie: {description: The section of the report, type: dict, returned: always}
"""
