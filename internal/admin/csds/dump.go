package csds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// ConfigDump returns the handler of /config_dump?node=: the resources of a node in the format of
// Envoy's admin interface. The answer has no bootstrap, because the server does not know that of the
// client.
//
// The handler writes the answer resource by resource. So a large answer is never in memory as a
// whole.
func (s *Service) ConfigDump() http.Handler { return http.HandlerFunc(s.dump) }

func (s *Service) dump(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "", "method not allowed: use GET", "")
		return
	}
	c, bad := s.requestedClient(r)
	if bad != nil {
		refuse(w, bad.code, bad.field, bad.text, bad.hint)
		return
	}
	var all []TypeConfig
	if c.Config != nil {
		of, cancel := context.WithTimeout(r.Context(), stuckBudget)
		defer cancel()
		var err error
		all, err = c.Config(of)
		if err != nil {
			refuse(w, http.StatusServiceUnavailable, "", "the client's stream does not answer: "+valid(err.Error()), "try again")
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodGet {
		d := dump{s: s, to: w}
		d.write(all)
	}
}

// A requestError describes an invalid request.
type requestError struct {
	code              int
	field, text, hint string
}

// requestedClient returns the client with the node ID in a request. Of several clients with this ID it
// returns the newest.
func (s *Service) requestedClient(r *http.Request) (*Client, *requestError) {
	query := r.URL.Query()
	for key, values := range query {
		switch {
		case key == "include_eds": // without effect, because the answer always has endpoints
		case key != "node":
			return nil, &requestError{http.StatusBadRequest, clip(key), "unknown parameter", "the only parameter is node=ID"}
		case len(values) > 1:
			return nil, &requestError{http.StatusBadRequest, "node", "given more than once", ""}
		}
	}
	id := query.Get("node")
	ids, found := map[string]bool{}, (*Client)(nil)
	clients := s.clients()
	for i := range clients {
		c := &clients[i]
		ids[c.Node.ID] = true
		if (c.Node.ID == id || !query.Has("node")) && (found == nil || !c.Since.Before(found.Since)) {
			found = c
		}
	}
	switch {
	case !query.Has("node") && len(ids) != 1:
		return nil, &requestError{http.StatusBadRequest, "node", fmt.Sprintf("required, because %d nodes are connected", len(ids)), "/config_dump?node=ID; /api/v1/clients?all=1 lists them"}
	case found == nil:
		return nil, &requestError{http.StatusNotFound, "node", fmt.Sprintf("no node %q is connected", clip(id)), "/api/v1/clients?all=1 lists the connected nodes"}
	}
	return found, nil
}

func clip(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most] + "…"
	}
	return valid(s)
}

func refuse(w http.ResponseWriter, code int, field, text, hint string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(api.Error{APIVersion: api.Version, Kind: "Error", Field: field, Message: text, Hint: hint})
}

// A dump is an answer that is being written.
type dump struct {
	s      *Service
	to     io.Writer
	err    error // write error: the caller has disconnected
	pretty bytes.Buffer
}

func (d *dump) text(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.to, format, args...)
	}
}

// write writes a ConfigDump with a section for each type that the client has opened.
func (d *dump) write(all []TypeConfig) {
	d.text("{\n \"configs\": [")
	first := true
	for i := range sections {
		c := &sections[i]
		for _, t := range all {
			if d.err != nil {
				return
			}
			if !t.Type.Is(c.typ) {
				continue
			}
			if !first {
				d.text(",")
			}
			first = false
			d.part(c, t)
		}
	}
	d.text("\n ]\n}\n")
}

func (d *dump) part(c *section, t TypeConfig) {
	d.text("\n  {\n   \"@type\": \"type.googleapis.com/%s\"", c.message)
	if c.version && t.Version != "" {
		v, _ := json.Marshal(valid(t.Version))
		d.text(",\n   \"version_info\": %s", v)
	}
	for _, list := range []protoreflect.Name{c.active, c.warming} {
		if list == "" || !slices.ContainsFunc(t.Resources, func(r Resource) bool { return c.in(&r) == list }) {
			continue
		}
		d.text(",\n   %q: [", string(list))
		n := 0
		for i := range t.Resources {
			if r := &t.Resources[i]; c.in(r) == list && d.err == nil {
				n++
				if n > 1 {
					d.text(",")
				}
				d.item(c, r)
			}
		}
		d.text("\n   ]")
	}
	d.text("\n  }")
}

// item writes one resource. If the resource has no JSON form, it is written without its body.
func (d *dump) item(c *section, r *Resource) {
	js := protojson.MarshalOptions{UseProtoNames: true, Resolver: d.s.types}
	var b []byte
	var err error
	shown := contents{s: d.s}
	body, refused := shown.of(r.Body), shown.of(r.refused())
	for _, with := range [][2]*content{{body, refused}, {body, nil}, {nil, nil}} {
		m := d.s.types.New(c.item)
		c.fill(m, r, with[0], with[1])
		b, err = js.Marshal(m.Interface())
		if err == nil {
			break
		}
		d.s.log().Warn("resource has no JSON form", "type", c.typ.Short, "name", r.Name, "error", err)
	}
	d.pretty.Reset()
	if err == nil {
		err = json.Indent(&d.pretty, b, "    ", " ")
	}
	if err != nil {
		d.text("\n    {}")
		return
	}
	d.text("\n    ")
	if d.err == nil {
		_, d.err = d.to.Write(d.pretty.Bytes())
	}
}
