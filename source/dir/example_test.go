package dir_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

var quiet = slog.New(slog.DiscardHandler)

// write writes a file for an example.
func write(root, name, text string) {
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
		panic(err)
	}
}

const cluster = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: backend
connect_timeout: 1s
`

// A program fills its store from a directory. If a file has a mistake, the previous configuration
// stays, and the error has the place of the mistake.
func Example() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	write(root, "cluster.yaml", cluster)

	st := store.New()
	src := dir.New(root, st, dir.Options{Log: quiet})
	report, err := src.Load()
	fmt.Println("files:", report.Files, "error:", err)
	// From here on src.Run(ctx) would load each change, in a goroutine of its own.

	write(root, "cluster.yaml", cluster+"lb_polciy: RANDOM\n")
	_, err = src.Load()
	if errs, ok := errors.AsType[dir.Errors](err); ok {
		for _, e := range errs {
			fmt.Printf("%s:%d:%d: %s (%s)\n", filepath.Base(e.File), e.Pos.Line, e.Pos.Column, e.Message, e.Hint)
		}
	}
	fmt.Println("served:", st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len())
	// Output:
	// files: 1 error: <nil>
	// cluster.yaml:4:1: unknown field "lb_polciy" in Cluster (did you mean "lb_policy"?)
	// served: 1
}

// A program that starts with invalid files serves the configuration from before.
func ExampleKeeper() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	write(root, "cluster.yaml", cluster)
	keeper, err := dir.OpenKeeper(filepath.Join(root, ".state"))
	if err != nil {
		panic(err)
	}
	options := dir.Options{Log: quiet, Keep: func(c dir.LastGood) {
		if err := keeper.Save(c); err != nil { // keeper.Keep does not wait for the disk
			fmt.Println(err)
		}
	}}
	if _, err := dir.New(root, store.New(), options).Load(); err != nil {
		panic(err)
	}

	// Another start.
	write(root, "cluster.yaml", "half of a fi")
	st := store.New()
	src := dir.New(root, st, options)
	if last, err := keeper.Load(); err == nil {
		fmt.Println("restored:", src.Restore(last) == nil)
	}
	_, err = src.Load()
	fmt.Println("files are good:", err == nil)
	fmt.Println("served:", st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len())
	// Output:
	// restored: true
	// files are good: false
	// served: 1
}

// A test of files before a merge also finds what Envoy would refuse.
func ExampleCheck() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	write(root, "cluster.yaml", `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: backend
type: EDS
`)
	for _, p := range dir.Check(root, dir.Options{}).Errors {
		kind, _ := findings.Explain(string(p.Code))
		fmt.Printf("%s:%d: %s: %s\n", filepath.Base(p.File), p.Pos.Line, p.Code, kind.Title)
	}
	// Output:
	// cluster.yaml:3: XDS0402: a cluster of type EDS without eds_config, or eds_cluster_config in another type
}
