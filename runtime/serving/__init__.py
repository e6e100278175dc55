"""Exported models behind the Open Inference Protocol (KServe V2).

errors      what a request can fail of, as gRPC and HTTP name it
requests    a request and an answer, whatever carries them
texts       own prompts -> a prompt set, through the bundle's text graph
models      one served model: bundle, engine, prompt sets
catalogue   all of them by name
inputs      image files and pixels -> what the engine takes
maps        saliency -> the normalised map, the mask, connected regions
overlay     image, map and mask -> PNG
answers     scores -> the outputs of an answer
admission   how many images may be on their way, and when they are through
bearer      the token a client must send
batcher     single images -> batches of the engine
pipeline    the service every transport calls
tensors     V2 tensors and their bytes
v2          V2 tensors <-> requests and answers
metadata    what the server says of itself and of its models
http_codec  the HTTP form of V2: JSON and the binary extension
http_body   reading a body within limits
http_guard  token, host names, access log and counters around the application
http_errors an error as a response
http_v2     the ASGI application
parsers     uvicorn's two HTTP/1.1 protocols, bounded alike
joined      small writes of a response, joined into one
connections time limits on connections (uvicorn)
server      sockets, signals, draining
metrics     Prometheus
access_log  one JSON line a request
page        the page at /, which asks /v2 as any client
"""
