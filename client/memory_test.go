package client_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// The client's memory for each resource in bytes, without the resource itself, for each way to watch
// it.
func TestMemoryOfResources(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector uses memory itself")
	}
	const n = 10_000
	var all []*xds.Resource
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("cluster-%06d", i))
		all = append(all, resource(xds.Cluster, names[i], "body"))
	}
	for name, tt := range map[string]struct {
		names []string
		most  int64 // the measured value plus a tenth
	}{
		"CLI-9 by a wildcard": {[]string{xds.Wildcard}, 265},
		"CLI-9 by name":       {names, 375},
	} {
		both(t, name, func(t *testing.T, v xds.Variant) {
			f := newFake(t, "xds://a", v)
			before := heap()
			c := begin(t, client.Config{}, f)
			told := 0
			go func() {
				for ev := range c.Watch(t.Context(), xds.Cluster, tt.names...) {
					if ev.Kind == client.Updated {
						told++
					}
				}
			}()
			s := f.stream()
			s.send(&xds.Response{Type: xds.Cluster, Version: "1", Nonce: "1", Changes: &xds.Changes{Upserts: all}})
			s.skip()
			synctest.Wait()
			if told != n {
				t.Fatalf("the watch got %d of %d resources", told, n)
			}
			each := (heap() - before) / n
			t.Logf("%d bytes each", each)
			if each > tt.most {
				t.Errorf("%d bytes each, more than %d", each, tt.most)
			}
			runtime.KeepAlive(c)
		})
	}
	runtime.KeepAlive(all)
}
