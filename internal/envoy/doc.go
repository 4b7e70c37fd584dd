// Package envoy provides the messages of Envoy's API, including contrib extensions, as descriptors.
// `make descriptors` extracts the encoded FileDescriptorSet from Go modules (tools/descriptors). The
// package links no generated code and registers nothing: use [Types] to read or write a message.
//
// [Envoy] reads the set at its first call. Descriptors of a file are built when a message of it is
// first used, together with its imports. A program that uses none of this pays only for the 210 KB of
// the set.
package envoy
