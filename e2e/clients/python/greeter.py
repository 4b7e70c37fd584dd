"""A gRPC client or server that takes its configuration over xDS, in grpcio (the C core).

greeter.py dial         a client of xds:///greeter.local
greeter.py serve PORT   a server on the loopback

How it is spoken to: ../README.md.
"""
import concurrent.futures
import json
import sys

import grpc

SERVICE, METHOD = "e2e.Greeter", "Greet"


def say(**reply):
    print(json.dumps(reply), flush=True)


def dial():
    with grpc.insecure_channel("xds:///greeter.local") as channel:
        greet = channel.unary_unary(f"/{SERVICE}/{METHOD}")  # bytes in, bytes out

        def done(id, call):
            if call.code() is grpc.StatusCode.OK:
                say(id=id, **{"from": call.result().decode()})
            else:
                say(id=id, code=call.code().value[0], error=call.details())

        for line in sys.stdin:
            id, ms = map(int, line.split())
            greet.future(b"", timeout=ms / 1000).add_done_callback(lambda call, id=id: done(id, call))


def serve(port):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), xds=True)
    greet = grpc.unary_unary_rpc_method_handler(lambda request, context: b"python")
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {METHOD: greet})])
    server.add_secure_port(f"127.0.0.1:{port}", grpc.xds_server_credentials(grpc.insecure_server_credentials()))
    server.start()
    sys.stdin.read()
    server.stop(None).wait()


{"dial": dial, "serve": serve}[sys.argv[1]](*sys.argv[2:])
