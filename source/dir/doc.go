// Package dir loads resources from the files of a directory into a store, and
// again whenever the directory changes. It is the source of the command chancery, for
// servers of one's own:
//
//	src := dir.New("config", st, dir.Options{})
//	if _, err := src.Load(); err != nil {
//		log.Fatal(err) // each mistake with its place
//	}
//	go src.Run(ctx)
//
// A load is all or nothing. Any mistake in any file keeps what was loaded
// before, and every mistake is told with its place: [Errors] has a findings.Problem for
// each. [Check] does the same without a store, for a test or a program that is run before
// files are merged.
//
// A directory with a file group.yaml is a group of its own, with all below it (docs/groups.md):
// the source fills a group of the store for each, and has the store select by the rules in
// these files. A group with "on_error: alone" is loaded, or kept, by itself: [Report] says
// which are kept.
//
// The package interprets no resource: the files are Envoy's own (docs/files.md), the names
// and references in them are data. It knows messages by the descriptors of Envoy's API,
// which are embedded, so that none of Envoy's generated code is linked.
package dir
