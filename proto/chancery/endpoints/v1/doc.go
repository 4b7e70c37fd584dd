// Package endpointsv1 is the gRPC API chancery.endpoints.v1, with which programs register endpoints.
// docs/endpoints.md has an example. All other files are generated from endpoints.proto by make proto.
package endpointsv1
