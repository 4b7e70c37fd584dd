package admin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// unbundle returns the files of an archive by name.
func unbundle(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Base(h.Name)] = string(content)
	}
}

// A lostStore is a store whose rollouts cannot be read.
type lostStore struct{ api.Steering }

func (lostStore) Rollouts(context.Context, string) (*api.RolloutList, error) {
	return nil, errors.New("the store is lost")
}

// A bundle has the answers of other paths. A part that cannot be made is listed, and the others are there.
func TestBundle(t *testing.T) {
	f := newFleet()
	f.past = []api.Event{{ID: 1, Kind: "connect", Node: "edge-2"}, {ID: 2, Kind: "ack", Node: "edge-2"}}
	h := newServer(f).Handler(loopback)
	w := ask(h, "GET /api/v1/bundle", "")
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Disposition"), `attachment; filename="chancery-bundle-`) {
		t.Fatal(w.Code, w.Header())
	}
	files := unbundle(t, w.Body.Bytes())
	for name, want := range map[string]string{
		"version.json": `"kind": "Version"`, "status.json": `"kind": "Status"`, "clients.json": `"node": "edge/1"`, "refusals.json": `"error": "no"`,
		"groups.json": `"name": "edge"`, "fleet.json": `"envoy 1.40.0"`, "resources.json": `"items"`, "events.jsonl": `"kind":"ack"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %s:\n%s", name, want, files[name])
		}
	}
	if want := (clients.Filter{All: true, Left: true, Limit: maxBundled}); !reflect.DeepEqual(f.asked, want) {
		t.Errorf("the clients are %+v, want %+v", f.asked, want)
	}
	if n := strings.Count(files["events.jsonl"], "\n"); n != 2 {
		t.Errorf("%d lines of events", n)
	}

	s := committing(t)
	s.Revisions.Steering = lostStore{}
	w = ask(s.Handler(loopback), "GET /api/v1/bundle", "", "Authorization", "Bearer secret")
	files = unbundle(t, w.Body.Bytes())
	if !strings.Contains(files["missing.txt"], "rollouts.json: the store is lost") || files["status.json"] == "" {
		t.Error(slices.Collect(func(yield func(string) bool) {
			for name := range files {
				yield(name)
			}
		}), files["missing.txt"])
	}
	if w := ask(s.Handler(loopback), "GET /api/v1/bundle", ""); w.Code != http.StatusUnauthorized {
		t.Error(w.Code)
	}
}
