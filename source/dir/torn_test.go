package dir

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// "Never half a configuration" (SAFE-10): the link of a mounted volume is replaced during a read, and
// the resources are in different files of the two versions.
func TestLinkReplacedDuringRead(t *testing.T) {
	b := newFixture(t)
	// The first file is read before the link is replaced, and the last after that.
	var swap sync.Once
	swapped := make(chan struct{})
	forms[".first"] = func(d *decoder) {
		swap.Do(func() { b.link("..new", "..data"); close(swapped) })
		d.yaml()
	}
	forms[".wait"] = func(d *decoder) { <-swapped; d.yaml() }
	defer func() { delete(forms, ".first"); delete(forms, ".wait") }()

	files := map[string][2]string{
		"a.first": {clusters("a"), clusters("a", "moved")},
		"z.yaml":  {clusters("moved", "z"), clusters("z")},
	}
	for i := range runtime.GOMAXPROCS(0) - 1 { // as many files as are read at a time
		files[fmt.Sprint("w", i, ".wait")] = [2]string{"# nothing", "# nothing"}
	}
	for name, of := range files {
		b.write(filepath.Join("..old", name), of[0], filepath.Join("..new", name), of[1])
		b.link(filepath.Join("..data", name), name)
	}
	b.link("..old", "..data")
	b.load("CDS a moved z")
}
