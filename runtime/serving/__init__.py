"""Exported models behind the Open Inference Protocol (KServe V2).

server      sockets, signals, draining
settings    the settings of a server, with defaults
http/       the protocol over HTTP: routes, bodies, JSON and raw bytes
grpc/       the protocol over gRPC
protocol/   requests, answers, tensors and errors, the same for HTTP and gRPC
inference/  models, prompts, images in, answers out: the service that every transport calls
queue/      the limit on accepted images, and the batches of the engine
page/       the page at /, a client of /v2 like any other
addresses   limits of one address, and trusted proxies
certificate TLS
bearer              the token that a client must send
access_log          one JSON line per request
prometheus_metrics  Prometheus
"""
