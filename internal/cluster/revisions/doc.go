// Package revisions keeps a configuration with its history where several programs find it: in a directory
// (package file), in an etcd (package etcd), or in an [Engine] of your own. Each commit is a [Revision]: all of
// the configuration, of all groups at once, immutable, with a number, an author and a reason. It is the
// newest in one atomic step, or not at all; nobody ever reads half of one.
//
//	repo := revisions.Open(engine, revisions.Options{})
//	base, err := repo.Head(ctx)                                  // the newest, verified
//	next, err := repo.Commit(ctx, base, base.To(items), note)    // or what says who was first
//	for s, err := range repo.Watch(ctx, next) { ... }            // each newer one; on errors the last good stays
//
// # What is stored
//
// Keys, and what is under them (docs/adr/0019-revisions.md says why):
//
//	pack/SHA256            at most 512 KiB of pages, manifests, and pieces of large bodies
//	revision/NUMBER-SHA256 who, when, why, its parent, and where the manifest of its tree is: JSON
//	head                   the newest revision, and the oldest that is kept: JSON; the only key that changes
//
// The items are in a binary tree by the hash of their keys (trie.go). Its leaves are pages of at most 24 KiB, so
// that a change of one item writes one page, one or two manifests, a revision and the head. A page has its
// items in the encoding of protobuf (item.go), each as it was first written: nobody encodes again what he
// does not change, so the version of a resource, which is the hash of its bytes, is the same for all who
// read it, whichever release of Chancery they are.
package revisions
