package revsource

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A server takes content from the revisions only, whatever the key accepted has.
func TestAcceptedContentIsThatOfRevisions(t *testing.T) {
	at := t.TempDir()
	e := engine(t, at)
	writer := revisions.Open(e, revisions.Options{})
	edge := definition("edge", "match: {cluster: edge}\n")
	one, two, three := route(t, "edge", "a", "one"), route(t, "edge", "a", "two"), route(t, "edge", "a", "three")
	for _, it := range []*revisions.Item{one, two, three, route(t, "edge", "a", "refused")} {
		commitAll(t, writer, it, route(t, "other", "a", "of another group"), edge, definition("other", "match: {cluster: other}\n"))
	}
	src := New(e, store.New(), Options{})
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	good := two.Resource
	version := func(name string, r *xds.Resource, body []byte) string {
		return fmt.Sprintf(`"replaced":[{"name":%q,"version":%q,"body":%q,"refs":null,"until":"9999-01-01T00:00:00Z","by":1}]`, name, r.Version, b64(body))
	}
	shared := func(name, sum string) string {
		return fmt.Sprintf(`"versions":[{"name":%q,"sum":%q,"until":"9999-01-01T00:00:00Z","by":1}]`, name, sum)
	}
	for what, c := range map[string]struct {
		text string
		want string
		log  bool
	}{
		"an earlier version":            {shared("a", good.Sum.String()), "two", false},
		"the one before":                {shared("a", one.Resource.Sum.String()), "one", false},
		"a version of an earlier build": {version("a", good, good.Body), "two", false},
		"an edited body":                {version("a", good, []byte("edited")), "", true},
		"bytes that are no message":     {version("a", good, []byte{0xff, 0xff, 0xff}), "", true},
		"the body of another name":      {version("b", good, good.Body), "", true},
		"a sum that no revision has":    {shared("a", "0123456789abcdef"), "", true},
		"a version of another group":    {shared("a", route(t, "other", "a", "of another group").Resource.Sum.String()), "", true},
	} {
		t.Run("HEAL-3 "+what, func(t *testing.T) {
			now := time.Now()
			part := fmt.Sprintf(`{"format":1,"servers":{"other":{"at":"9999-01-01T00:00:00Z","evidence":{"format":1,"scopes":[{"group":"edge","types":[{"type":%q,"agents":["envoy"],%s}]}]}}}}`, xds.Route.URL, c.text)
			if err := replace(t, e, []byte(part)); err != nil {
				t.Fatal(err)
			}
			var book evidence.Book
			var log strings.Builder
			a := NewAccepted(e, src, &book, "this", slog.New(slog.NewTextHandler(&log, nil)))
			for range 3 {
				if err := a.sync(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Minute)
			}
			got := book.Scope("edge", "").Before(now, xds.Route, "a", xds.Sum{}, "envoy")
			if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !bytes.Contains(got[0].Body, []byte(c.want)) || got[0].Refs == nil) {
				t.Errorf("%v", got)
			}
			if n := strings.Count(log.String(), "key=accepted type=RDS"); n != 0 != c.log || n > 1 {
				t.Errorf("log: %s", log.String())
			}
			if book.Scope("edge", "").Before(now.Add(25*time.Hour), xds.Route, "a", xds.Sum{}, "envoy") != nil {
				t.Error("a date in the future does not expire")
			}
		})
	}
	t.Run("HEAL-3 a sweep keeps the revisions of accepted versions, at most 100", func(t *testing.T) {
		if err := replace(t, e, []byte(`{"format":1,"servers":{"a":{"evidence":{"format":1,"scopes":[],"oldest":3}},"b":{"evidence":null},"c":{"evidence":{"oldest":4}}}}`)); err != nil {
			t.Fatal(err)
		}
		if s, err := writer.Sweep(t.Context(), 1); err != nil || s.Oldest != 3 || s.Accepted != 3 || s.Revisions != 2 {
			t.Errorf("%+v, %v", s, err)
		}
		if n, err := writer.Due(t.Context(), 1); err != nil || n != 0 {
			t.Error(n, err)
		}
		if err := replace(t, e, []byte(`{`)); err != nil {
			t.Fatal(err)
		}
		if s, err := writer.Sweep(t.Context(), 1); err != nil || s.Oldest != 4 || s.Accepted != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func acceptAll(t *xds.Table) protocol.Acceptance { return protocol.Acceptance{All: t.Versions()} }

func replace(t *testing.T, e revisions.Engine, value []byte) error {
	t.Helper()
	old, err := e.Get(t.Context(), revisions.AcceptedKey)
	if err != nil && !errors.Is(err, revisions.ErrNotFound) {
		return err
	}
	return e.CompareAndSwap(t.Context(), revisions.AcceptedKey, old, value)
}

// A server shares the sums of versions, and the oldest revision that has their content.
func TestSharedVersionsHaveNoContent(t *testing.T) {
	revision := "r7"
	b := evidence.Book{Revision: func(string, *xds.Type, string, xds.Sum) string { return revision }}
	s, now := b.Scope("edge", ""), time.Now()
	is := xds.NewTable(xds.Route)
	for i, text := range []string{"one", "two"} {
		var err error
		is, err = is.With([]*xds.Resource{xds.NewResource(xds.Route, "a", []byte("content "+text))})
		if err != nil {
			t.Fatal(err)
		}
		s.Show(now, xds.Route, is, func(*xds.Type) []*xds.Table { return nil })
		s.Accept(xds.Route, "envoy", "owner", fmt.Sprint(i), acceptAll(is))
		revision = "r9"
	}
	data, err := b.Share(now, 10_000)
	if err != nil || !bytes.Contains(data, []byte(`"oldest":8`)) || bytes.Contains(data, []byte("body")) || bytes.Contains(data, []byte(b64([]byte("content one")))) {
		t.Errorf("HEAL-3 %s, %v", data, err)
	}
	var other evidence.Book
	other.Learn(iter.Seq2[time.Time, []byte](func(yield func(time.Time, []byte) bool) { yield(now, data) }), func(_ string, _ *xds.Type, name, sum string) *xds.Resource {
		if r := xds.NewResource(xds.Route, name, []byte("content one")); r.Sum.String() == sum {
			return r
		}
		return nil
	})
	if got := other.Scope("edge", "").Before(now, xds.Route, "a", xds.Sum{}, "envoy"); len(got) != 1 || string(got[0].Body) != "content one" {
		t.Errorf("HEAL-3 %v", got)
	}
	var empty evidence.Book
	if data, err := empty.Share(now, 10_000); err != nil || data != nil {
		t.Errorf("HEAL-3 %s, %v", data, err)
	}
}
