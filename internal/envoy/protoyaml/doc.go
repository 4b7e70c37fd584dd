// Package protoyaml decodes protobuf messages written by people: YAML and JSON
// as protobuf's JSON mapping has it. Unlike other readers it tells every
// mistake at once and each with its place, inside google.protobuf.Any too;
// follows anchors; refuses duplicate keys and unknown fields, with a
// suggestion; and warns of what it accepts but Envoy's own reader refuses.
//
// It reads no files and knows no resource types: messages are found through a
// resolver.
package protoyaml
