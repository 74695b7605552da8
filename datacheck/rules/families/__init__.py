"""Families of rules, one file for each kind of fault; none needs another one."""
