# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name, which does all the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Refuse a request that cannot be run, before any connection
description:
  - Runs on the controller and connects to no host. All problems come in one message; they are tags that no playbook
    has, no host, an unknown stack, missing values, and variables that nothing reads.
options:
  group: {description: Group that the playbooks run on, type: str, required: true}
  tags: {description: All tags of the playbooks, type: list, elements: str, required: true}
  stacks: {description: Folder of the stack files, type: path, required: true}
  roles:
    description:
      - Folder of the roles. Every argument in their specifications is a known variable.
      - A required argument that C(vars/aerie.yml) of the playbooks does not set is required of every host.
    type: path
    required: true
  playbooks:
    description: Folder of the playbooks. The variables that they read without setting them are known too.
    type: path
    required: true
  prefixes:
    description:
      - A variable of a host whose name begins with one of these, or with a role's name, is refused unless it is known.
      - Any other is refused when it is nearly the name of a known one.
    type: list
    elements: str
    required: true
  renamed:
    description:
      - Prefixes of former names, each with the prefix that replaced it. A former name is refused with its new name.
    type: dict
    required: true
  required:
    description:
      - Variables beside the roles' arguments that each host must have, with their meaning. A local connection needs no
        C(ansible_host).
    type: dict
    required: true
  only_stack:
    description: Judge only the first host, and require only C(aerie_stack_name) of it. This is what a bundle needs.
    type: bool
    default: false
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
    renamed: {old_role_: new_role_}
    required: {aerie_home: a folder of the host}
"""

RETURN = r"""
aerie: {description: The section of the report, type: dict, returned: always}
"""
