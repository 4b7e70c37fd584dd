// Package dir loads xDS resources from the files of a directory into a store, and reloads them when
// the directory changes. The command chancery uses it; use it to build a server of your own:
//
//	src := dir.New("config", st, dir.Options{})
//	if _, err := src.Load(); err != nil {
//		log.Fatal(err) // each mistake with its place
//	}
//	go src.Run(ctx)
//
// A load is all or nothing. A mistake in any file keeps the previous configuration. The load reports
// every mistake with its place: [Errors] has a findings.Problem for each. [Check] does the same
// without a store, for a test or a program that runs before files are merged.
//
// A directory with a file group.yaml is a group of nodes, with all directories below it
// (docs/groups.md). The source fills one group of the store for each of them. The store then selects
// groups for a node by the rules in these files. A group with "on_error: alone" is loaded or rejected
// independently of the others: [Report] lists the rejected groups.
//
// The package does not interpret resources: the files are Envoy's own (docs/files.md). It only reads
// their names and references. It decodes messages with the embedded descriptors of Envoy's API, so
// Envoy's generated code is not linked.
//
// The methods Occurrences, Lookup, Rule, Nearest, LoadError, ErrorsMentioning, Examine, FieldAt and
// Scratch of [Source] explain its state to an operator. The admin API of the command chancery uses
// them; other programs seldom need them.
package dir
