// Package importer converts an Envoy configuration to resource files. It reads a static bootstrap, the
// config_dump of Envoy's admin interface, or the files that Envoy subscribes to. A bootstrap keeps the
// parts that no server can send.
//
// The package edits the YAML nodes of the files, so comments, order and spelling stay. It reads the
// messages too, to know what a node means. It knows messages only by their descriptors, opens no
// connection, starts no goroutine and reads no clock. Its errors and notes contain names and positions,
// and no field values.
package importer
