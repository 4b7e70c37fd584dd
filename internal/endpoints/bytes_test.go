package endpoints

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// full returns an endpoint with the maximum number of metadata values.
func full(n int, text string) Registered {
	r := at(n)
	values := make([]any, MaxValues-3)
	for i := range values {
		values[i] = text
	}
	r.Metadata = map[string]map[string]any{"m": {"l": values}}
	return r
}

// Metadata takes memory by its bytes, not by its unpacked values, and List returns all of it.
func TestMetadataIsPacked(t *testing.T) {
	r := start(t, "", Options{})
	x := Cluster{defaultGroup, "x"}
	const n = 1000
	all := make([]Registered, n)
	for i := range all {
		all[i] = full(i, "")
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	one, err := encode(all[0].Endpoint, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	if _, err := r.Put(t.Context(), x, all, 0); err != nil {
		t.Fatal(err)
	}
	if n := r.sees("x"); n != len(all) {
		t.Fatal(n)
	}
	if each := int(heap()-before) / n; each > 2000+6*len(one) {
		t.Errorf("an endpoint of %d bytes takes %d", len(one), each)
	}
	runtime.KeepAlive(all)
	is := func() {
		t.Helper()
		for _, e := range r.List("", "x")[0].Endpoints[:2] {
			if got := e.Metadata["m"]["l"].([]any); len(got) != MaxValues-3 || got[0] != "" {
				t.Errorf("%v", e)
			}
		}
	}
	is()
	r.mu.Lock()
	_, err = r.set.Apply(Change{Key: Key{x, "10.0.0.1:80"}, Value: []byte("nonsense")})
	r.mu.Unlock()
	if err == nil {
		t.Error("nonsense")
	}
	is()
}

// The total size of all endpoints is limited, on each way of registration. An existing endpoint may get
// smaller.
func TestBytesAreBounded(t *testing.T) {
	ctx, x := t.Context(), Cluster{defaultGroup, "x"}
	value, err := encode(full(0, "text").Endpoint, 0)
	if err != nil {
		t.Fatal(err)
	}
	most := 3 * (size("a", value) + 3)
	r := start(t, "", Options{MaxBytes: most})
	op := func(id string, e Endpoint) Op { return Op{Cluster: x, ID: id, Endpoint: &e} }
	put := func(id string, e Registered) error {
		e.ID = id
		_, err := r.Put(ctx, x, []Registered{e}, 0)
		return err
	}
	limited := func(what string, err error) {
		t.Helper()
		if e, is := errors.AsType[*LimitError](err); !is || !strings.HasSuffix(e.Error(), fmt.Sprint("bytes of endpoints: at most ", most, " are allowed")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s, err := r.Session(0)
	if err != nil {
		t.Fatal(err)
	}
	big, small := full(0, "text"), at(0)
	errs, err := s.Apply(ctx, []Op{op("a", big.Endpoint), op("b", big.Endpoint), op("c", big.Endpoint), op("d", big.Endpoint), op("d", big.Endpoint), {Cluster: x, ID: "b"}, op("d", big.Endpoint), op("b", big.Endpoint)})
	if err != nil || len(errs) != 3 {
		t.Fatal(errs, err)
	}
	for _, i := range []int{3, 4, 7} {
		limited("at once", errs[i])
	}
	limited("another one", put("b", small))
	limited("more of one", put("a", full(0, "longer")))
	_, err = r.Replace(ctx, x, []Registered{full(0, "t"), full(1, "t"), full(2, strings.Repeat("t", 20))}, 0)
	limited("others", err)
	for _, err := range []error{put("a", small), put("a", big), put("a", small), put("b", small)} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Replace(ctx, x, []Registered{big}, 0); err != nil {
		t.Error(err)
	}
	if want := size(big.Endpoint.at(), value); r.set.bytes != want {
		t.Errorf("%d bytes, want %d", r.set.bytes, want)
	}
	// Another server may write twice as much.
	for i := range 9 {
		r.hear([]Change{{Key: Key{x, fmt.Sprint(i)}, Value: value}}, false)
	}
	if r.set.bytes > 2*most || r.set.bytes < most {
		t.Errorf("%d bytes, and %d may be", r.set.bytes, 2*most)
	}
	if _, err := r.Remove(ctx, x); err != nil {
		t.Fatal(err)
	}
	for _, k := range r.set.Keys() {
		r.hear([]Change{{Key: k}}, false)
	}
	if r.set.bytes != 0 {
		t.Errorf("%d bytes of an empty set", r.set.bytes)
	}
}
