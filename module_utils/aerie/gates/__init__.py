"""Checks that run before anything is changed or spent: facts are gathered here, and judged by pure functions."""
