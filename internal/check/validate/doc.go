// Package validate says what Envoy refuses in a message: what breaks the rules that
// Envoy's API states for its fields (validate.rules of protoc-gen-validate), and what
// Envoy was seen to refuse besides. It looks into every google.protobuf.Any whose type is
// known, knows messages by their descriptors, and links no generated code.
//
// It reads no file and knows nothing of other resources. A message in which it finds
// nothing may still be refused: what an extension thinks of its settings, Envoy alone
// knows.
package validate
