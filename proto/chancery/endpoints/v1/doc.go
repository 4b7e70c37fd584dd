// Package endpointsv1 is the client of chancery.endpoints.v1, by which programs register endpoints over gRPC: docs/endpoints.md
// has an example. All but this file is made of endpoints.proto by make proto.
package endpointsv1
