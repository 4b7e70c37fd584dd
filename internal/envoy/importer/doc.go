// Package importer makes files of resources out of what an Envoy runs with: a static
// bootstrap, the config_dump of its admin interface, or the files that it subscribes to.
// What cannot come from a server stays in a bootstrap.
//
// It works on the nodes of the files, so that comments, order and spelling stay, and looks
// at messages to know what a node means. It knows messages by their descriptors, serves
// nothing, starts no goroutine and reads no clock. Its errors and notes have names and
// places, and nothing of what is in a field.
package importer
