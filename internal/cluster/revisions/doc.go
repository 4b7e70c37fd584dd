// Package revisions is a versioned configuration store that several programs share: in a directory
// (package file), in an etcd (package etcd), or in an [Engine] of your own. Each commit is a
// [Revision]: the whole configuration of all groups, immutable, with a number, an author and a
// message. A commit becomes the newest revision in one atomic step: readers never see a part of it.
//
//	repo := revisions.Open(engine, revisions.Options{})
//	base, err := repo.Head(ctx)                                  // the newest, verified
//	next, err := repo.Commit(ctx, base, base.To(items), note)    // or a ConflictError
//	for s, err := range repo.Watch(ctx, next) { ... }            // each newer one; on errors the last good stays
//
// # Storage format
//
// The keys and their values (docs/adr/0019-revisions.md gives the reasons):
//
//	pack/SHA256            at most 512 KiB of pages, manifests, and pieces of large bodies
//	revision/NUMBER-SHA256 author, time, message, parent, and the place of its tree's manifest: JSON
//	head                   the newest revision, and the oldest one kept: JSON; the only key that changes
//
// The items are in a binary tree, ordered by the hash of their keys (trie.go). Its leaves are pages
// of at most 24 KiB. So a change of one item writes one page, one or two manifests, a revision and
// the head.
//
// A page has its items in the protobuf encoding (item.go). A writer copies unchanged items byte by
// byte and never encodes them again. The version of a resource is the hash of its bytes. So readers
// of any release of Chancery get the same version.
package revisions
