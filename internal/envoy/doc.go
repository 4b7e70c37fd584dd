// Package envoy has the messages of Envoy's API, contrib extensions included, as
// descriptors: the encoded FileDescriptorSet that `make descriptors` takes out of Go
// modules (tools/descriptors). It links no generated code and registers nothing: who
// wants to read or write a message is given [Types].
//
// Nothing is read of the set before [Envoy] is called, and descriptors are built for the
// files that somebody asks for, with all that they import: what a program does not use
// costs it nothing but the 210 KB of the set.
package envoy
