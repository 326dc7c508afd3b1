"""The same commands on a Ray cluster: the only folder that imports ray, and only with the option --cluster."""
