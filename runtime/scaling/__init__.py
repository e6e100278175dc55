"""Evaluations and servers on more than one machine.

jobs        what a worker is told, and what it gives back
worker      a chunk of cases -> the bytes of its part file; knows nothing of who asks
driver      plans cells, hands out their chunks, keeps the run directory
placement   how many workers the nodes of a cluster take, and with how many threads
ray_pool    the workers as actors of Ray Data
ray_serve   the server of `runtime/serving` as a deployment of Ray Serve

Shards that know nothing of each other need none of this: `runtime/results/shards.py`, `merging.py`.
"""
