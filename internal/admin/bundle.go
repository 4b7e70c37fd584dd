package admin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// maxBundled is the maximum number of clients and of resources in a bundle.
const maxBundled = 10_000

// bundle sends an archive for a bug report, with the answers of other paths. It has no content of resources. Parts that
// cannot be made are listed in a file of the archive.
func (s *Server) bundle(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	now := time.Now()
	top := "chancery-bundle-" + now.UTC().Format("20060102-150405")
	headers(w, "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="`+top+`.tar.gz"`)
	z := gzip.NewWriter(&slowly{w, http.NewResponseController(w)})
	archive := tar.NewWriter(z)
	add := func(name string, content []byte) (written bool) {
		err := archive.WriteHeader(&tar.Header{Name: top + "/" + name, Mode: 0o644, Size: int64(len(content)), ModTime: now})
		if err == nil {
			_, err = archive.Write(content)
		}
		return err == nil
	}
	var lacking []byte
	for _, p := range s.bundled() {
		content, err := p.get(r.Context())
		if err != nil {
			lacking = append(lacking, p.name+": "+err.Error()+"\n"...)
			continue
		}
		if !add(p.name, content) {
			return nil // the caller is gone
		}
	}
	if lacking != nil && !add("missing.txt", lacking) {
		return nil
	}
	if archive.Close() == nil {
		_ = z.Close() // without the end, the caller knows that the archive is incomplete
	}
	return nil
}

// A bundlePart is a file of a bundle.
type bundlePart struct {
	name string
	get  func(context.Context) ([]byte, error)
}

// bundled returns the files of a bundle.
func (s *Server) bundled() []bundlePart {
	part := func(name string, f func(ctx context.Context) (any, error)) bundlePart {
		return bundlePart{name, func(ctx context.Context) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			v, err := f(ctx)
			if err != nil {
				return nil, err
			}
			return json.MarshalIndent(v, "", " ")
		}}
	}
	all := []bundlePart{
		part("version.json", func(context.Context) (any, error) { return s.versionNow(), nil }),
		part("status.json", func(ctx context.Context) (any, error) { return s.statusNow(ctx, clients.Filter{}), nil }),
		part("clients.json", func(ctx context.Context) (any, error) {
			return s.clientsNow(ctx, clients.Filter{All: true, Left: true, Limit: maxBundled})
		}),
		part("refusals.json", func(ctx context.Context) (any, error) { return s.refusalsNow(ctx), nil }),
		part("groups.json", func(context.Context) (any, error) { return s.groupsNow(), nil }),
		part("fleet.json", func(context.Context) (any, error) { return s.fleetNow(), nil }),
		part("resources.json", func(ctx context.Context) (any, error) {
			return s.Explainer.Served(ctx, ResourceQuery{Limit: maxBundled})
		}),
		{"events.jsonl", func(context.Context) ([]byte, error) {
			var b bytes.Buffer
			out := json.NewEncoder(&b)
			for _, e := range s.Tracker.Events(0) {
				if err := out.Encode(e); err != nil {
					return nil, err
				}
			}
			return b.Bytes(), nil
		}},
	}
	if s.Revisions != nil && s.Revisions.Steering != nil {
		all = append(all, part("rollouts.json", func(ctx context.Context) (any, error) { return s.Revisions.Steering.Rollouts(ctx, "") }))
	}
	return all
}
