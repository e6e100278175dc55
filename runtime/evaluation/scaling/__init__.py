"""Evaluations and servers on more than one machine.

jobs       the jobs of a worker, and its results
worker     a chunk of cases -> the bytes of its part file; independent of the backend
driver     plans cells, distributes their chunks, writes the run directory
placement  how many workers fit on the nodes of a cluster, and with how many threads
ray_pool   the workers as actors of Ray Data
ray_serve  the server of `runtime/serving` as a deployment of Ray Serve

Independent shards need none of this: `shards.py` and `merging.py` of `runtime/results/runs`.
"""
