// Package validate checks a message for mistakes that make Envoy reject it. It checks the rules that
// Envoy's API declares for its fields (validate.rules of protoc-gen-validate), and further rules
// observed in Envoy. It also checks the message in each google.protobuf.Any of a known type. It uses
// descriptors, so it links no generated code.
//
// It reads no files and knows no other resources. Envoy may still reject a message without findings,
// because only Envoy knows the rules of some extensions.
package validate
