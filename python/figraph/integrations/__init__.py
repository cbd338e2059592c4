"""Integrations of figraph into other libraries, with one module for each."""
