// A gRPC client or server that takes its configuration over xDS, in grpc-js.
//
//   greeter.js dial         a client of xds:///greeter.local
//   greeter.js serve PORT   a server on the loopback
//
// How it is spoken to: ../README.md.
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

const path = '/e2e.Greeter/Greet';
const bytes = (b) => b;

function dial() {
  const client = new grpc.Client('xds:///greeter.local', grpc.credentials.createInsecure());
  const say = (reply) => process.stdout.write(JSON.stringify(reply) + '\n');
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const [id, ms] = line.split(' ').map(Number);
    client.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), { deadline: Date.now() + ms }, (err, name) => {
      say(err ? { id, code: err.code, error: err.details } : { id, from: name.toString() });
    });
  });
  lines.on('close', () => process.exit());
}

function serve(port) {
  const server = new xds.XdsServer();
  const greet = { path, requestStream: false, responseStream: false, requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes };
  server.addService({ Greet: greet }, { Greet: (call, done) => done(null, Buffer.from('node')) });
  const credentials = new xds.XdsServerCredentials(grpc.ServerCredentials.createInsecure());
  server.bindAsync(`127.0.0.1:${port}`, credentials, (err) => {
    if (err) throw err;
  });
  process.stdin.resume().on('end', () => process.exit());
}

xds.register();
({ dial, serve })[process.argv[2]](...process.argv.slice(3));
