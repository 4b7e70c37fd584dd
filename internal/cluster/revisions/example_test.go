package revisions_test

import (
	"context"
	"fmt"
	"os"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// A configuration is committed, changed, and restored.
func Example() {
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	engine, err := file.Open(dir, nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	repo := revisions.Open(engine, revisions.Options{})
	commit := func(timeout, why string) {
		base, err := repo.Head(ctx)
		if err != nil {
			panic(err)
		}
		backend := &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, "backend", []byte(timeout))}
		if _, err = repo.Commit(ctx, base, base.To([]*revisions.Item{backend}), revisions.Note{Author: "ci", Message: why}); err != nil {
			panic(err)
		}
	}
	commit("1s", "a backend")
	commit("5s", "raise its timeout")

	base, _ := repo.Head(ctx)
	if _, err := repo.Restore(ctx, base, 1, revisions.Note{Author: "me", Message: "no, it hangs"}); err != nil {
		panic(err)
	}
	_ = repo.History(ctx, func(r revisions.Revision) bool {
		fmt.Printf("%s by %s: %s\n", r.Number, r.Author, r.Message)
		return true
	})
	now, _ := repo.Head(ctx)
	fmt.Printf("%s\n", now.Get(revisions.Key{Group: "default", Type: xds.Cluster.URL, Name: "backend"}).Resource.Body)
	// Output:
	// r3 by me: no, it hangs
	// r2 by ci: raise its timeout
	// r1 by ci: a backend
	// 1s
}
