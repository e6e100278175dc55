"""Exported models behind the Open Inference Protocol (KServe V2).

server      sockets, signals, draining
settings    what a server can be told, with defaults
http/       the protocol over HTTP: routes, bodies, JSON and raw bytes
grpc/       the protocol over gRPC
protocol/   requests, answers, tensors and errors, whatever carries them
inference/  models, prompts, images in, answers out: the service that every transport calls
queue/      the limit on accepted images, and the batches of the engine
page/       the page at /, which asks /v2 as any client
bearer      the token a client must send
access_log  one JSON line a request
metrics     Prometheus
"""
