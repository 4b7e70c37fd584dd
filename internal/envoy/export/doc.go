// Package export writes resources as files that Envoy runs from with no server
// alive: DiscoveryResponses, and ConfigSources inside the resources that lead
// from one file to the next ("Filesystem subscriptions").
//
// What is in an export directory:
//
//	current -> .generations/7      the export; Envoy reads through this link
//	bootstrap.json -> current/_bootstrap.json
//	.generations/7/lds.yaml        all listeners; so cds.yaml and srds.yaml
//	.generations/7/eds/NAME.yaml   one assignment; so rds, sds, ecds and others
//
// # Why directories are swapped
//
// Each change is a new directory, complete before one rename(2) of the link
// puts it in the place of the last; files that have not changed are the same
// files, by hard links. So Envoy, whenever it starts, finds files that fit
// together; a disk that is full in the middle has changed nothing; and a crash
// leaves either all of it or nothing. Renaming file by file is none of that.
// Envoy hears of it since every ConfigSource says watched_directory: it reads
// all of its files again at each change, and leaves alone what is equal, which
// costs it 0.2 ms a file in JSON and 0.7 ms in YAML. (Seen with 1.40. A watch of
// single files would save that, and costs as many watches.)
//
// # Make before break
//
// Within one swap Envoy takes up the files in any order, and "there is no
// mechanism available for filesystem subscriptions to ACK/NACK updates". So a
// change that needs an order is several swaps, with a pause between them that
// gives Envoy time: first clusters, endpoints and secrets, with the clusters
// that are to go still among them; then listeners and routes; then what is gone.
// Most changes need one swap and no pause: see steps.
//
// The package reads no clock but for the pause, starts no goroutine and logs
// nothing.
package export
