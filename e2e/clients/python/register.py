"""Registers endpoints over gRPC in grpcio (the C core): register.py TARGET

A line of standard input is a request in hexadecimal, and a line of standard output a response; the last line is
the code that the stream has ended with. It ends its half when standard input ends.
"""
import sys

import grpc

METHOD = "/chancery.endpoints.v1.Endpoints/Register"

with grpc.insecure_channel(sys.argv[1]) as channel:
    register = channel.stream_stream(METHOD)  # bytes in, bytes out
    call = register(bytes.fromhex(line) for line in sys.stdin)
    try:
        for response in call:
            print(response.hex(), flush=True)
    except grpc.RpcError:
        pass
    print(call.code().name, call.details(), flush=True)
