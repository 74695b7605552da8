"""Families of rules, one module for each kind of fault; no family imports another one."""
