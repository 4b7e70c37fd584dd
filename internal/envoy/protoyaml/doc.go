// Package protoyaml decodes protobuf messages from YAML and JSON files that people write. It follows
// protobuf's JSON mapping. Unlike other readers, it reports all mistakes at once, each with its
// position, also inside google.protobuf.Any. It resolves YAML anchors. It rejects duplicate keys and
// unknown fields, with suggestions. It warns about spellings that it accepts but Envoy's own reader
// refuses.
//
// The package reads no files and knows no resource types: a resolver finds the messages.
package protoyaml
