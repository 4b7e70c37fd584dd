// Package apitest is an API server of Kubernetes for tests. It only has EndpointSlices: lists, watches
// with bookmarks and initial events, and 410 Gone. Its responses are like those of a real API server.
package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A Server is an API server. Any goroutine may call its methods.
type Server struct {
	*httptest.Server
	Old bool // it does not support lists by watch, as before 1.32; set it before the first request

	mu        sync.Mutex
	changed   chan struct{} // closed when something changes
	items     map[string]*discovery.EndpointSlice
	version   int
	events    []event
	compacted int
	refuses   int           // status code of all responses; 0: it serves
	refused   chan struct{} // closed when it has refused a request
	instead   func(http.ResponseWriter, *http.Request) bool
	drop      int // a new value ends all watches
	lists     int
	watches   int
}

type event struct {
	version int
	typ     string
	object  any
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, nil)
}

func start(t testing.TB, l net.Listener) *Server {
	s := &Server{changed: make(chan struct{}), items: map[string]*discovery.EndpointSlice{}, version: 10, refused: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(s)
	if l != nil {
		_ = s.Listener.Close()
		s.Listener = l
	}
	s.Server.Start()
	t.Cleanup(func() { s.Refuse(http.StatusServiceUnavailable); s.Close() })
	return s
}

// Kubeconfig writes a kubeconfig file with the address of the server.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [{"name": "x", "cluster": {"server": %q}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`, s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Put creates or changes a slice.
func (s *Server) Put(one *discovery.EndpointSlice) {
	s.change(func() {
		s.version++
		one = one.DeepCopy()
		one.ResourceVersion = strconv.Itoa(s.version)
		key, typ := one.Namespace+"/"+one.Name, "ADDED"
		if s.items[key] != nil {
			typ = "MODIFIED"
		}
		s.items[key] = one
		s.events = append(s.events, event{s.version, typ, one})
	})
}

// Delete deletes a slice.
func (s *Server) Delete(namespace, name string) {
	s.change(func() {
		s.version++
		one := s.items[namespace+"/"+name].DeepCopy()
		delete(s.items, namespace+"/"+name)
		one.ResourceVersion = strconv.Itoa(s.version)
		s.events = append(s.events, event{s.version, "DELETED", one})
	})
}

// Compact forgets past events: a watch from an older version gets 410 Gone.
func (s *Server) Compact() {
	s.change(func() { s.version++; s.compacted, s.events = s.version, nil })
}

// Bookmark sends a bookmark to all watches.
func (s *Server) Bookmark() {
	s.change(func() {
		s.version++
		s.events = append(s.events, event{s.version, "BOOKMARK", s.bookmark(nil)})
	})
}

// Refuse makes the server end all watches and respond with a status code, 403 or 503, until it is
// called with 0.
func (s *Server) Refuse(code int) { s.change(func() { s.refuses = code }) }

// Instead makes the server end all watches, and call f for each request. If f returns false, the server responds as
// usual. Nil: f is not called.
func (s *Server) Instead(f func(http.ResponseWriter, *http.Request) bool) {
	s.change(func() { s.instead = f; s.drop++ })
}

// Send sends a line to all watches.
func (s *Server) Send(line string) {
	s.change(func() {
		s.version++
		s.events = append(s.events, event{s.version, "", json.RawMessage(line)})
	})
}

// Restore puts the server back to a version with these slices, as a backup does.
func (s *Server) Restore(version int, all ...*discovery.EndpointSlice) {
	s.change(func() {
		s.version, s.compacted, s.events, s.items = version, 0, nil, map[string]*discovery.EndpointSlice{}
		for _, one := range all {
			one = one.DeepCopy()
			one.ResourceVersion = strconv.Itoa(version)
			s.items[one.Namespace+"/"+one.Name] = one
		}
	})
}

// AwaitRefusal waits until the server has refused a request.
func (s *Server) AwaitRefusal() {
	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()
	<-refused
}

// Drop ends all watches in the middle of a line.
func (s *Server) Drop() { s.change(func() { s.drop++ }) }

// Asked returns how many lists and watches were requested.
func (s *Server) Asked() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

func (s *Server) bookmark(notes map[string]string) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{TypeMeta: kind, ObjectMeta: meta.ObjectMeta{ResourceVersion: strconv.Itoa(s.version), Annotations: notes}}
}

var kind = meta.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}

var reasons = map[int]meta.StatusReason{http.StatusForbidden: meta.StatusReasonForbidden, http.StatusServiceUnavailable: meta.StatusReasonServiceUnavailable}

func failure(code int, reason meta.StatusReason) *meta.Status {
	return &meta.Status{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: meta.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason)}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace := ""
	if _, after, is := strings.Cut(r.URL.Path, "/namespaces/"); is {
		namespace, _, _ = strings.Cut(after, "/")
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	mine := func(one *discovery.EndpointSlice) bool {
		return (namespace == "" || one.Namespace == namespace) && selector.Matches(labels.Set(one.Labels))
	}
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(code int, reason meta.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(failure(code, reason))
	}
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	switch {
	case s.instead != nil && s.instead(w, r):
	case s.refuses != 0:
		close(s.refused)
		s.refused = make(chan struct{})
		refuse(s.refuses, reasons[s.refuses])
	case err != nil || !strings.HasSuffix(r.URL.Path, "/endpointslices"):
		refuse(http.StatusNotFound, meta.StatusReasonNotFound)
	case from > s.version && (q.Get("watch") == "" || q.Get("sendInitialEvents") == "true"):
		w.WriteHeader(http.StatusGatewayTimeout)
		late := failure(http.StatusGatewayTimeout, meta.StatusReasonTimeout)
		late.Details = &meta.StatusDetails{Causes: []meta.StatusCause{{Type: meta.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}}
		_ = json.NewEncoder(w).Encode(late)
	case q.Get("watch") == "":
		s.lists++
		list := discovery.EndpointSliceList{TypeMeta: meta.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: meta.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, Items: []discovery.EndpointSlice{}}
		for _, one := range s.items {
			if mine(one) {
				list.Items = append(list.Items, *one)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	case q.Get("sendInitialEvents") == "true" && s.Old:
		refuse(http.StatusUnprocessableEntity, meta.StatusReasonInvalid)
	default:
		s.watches++
		s.watch(w, r, mine)
	}
}

// watch sends events. The server is locked, but not during a wait.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, mine func(*discovery.EndpointSlice) bool) {
	send := func(typ string, object any) {
		if one, is := object.(*discovery.EndpointSlice); is {
			if one.Name != "" && !mine(one) {
				return
			}
			one = one.DeepCopy()
			one.TypeMeta = kind
			object = one
		}
		b, raw := object.(json.RawMessage)
		if !raw {
			b, _ = json.Marshal(map[string]any{"type": typ, "object": object})
		}
		_, _ = w.Write(append(b, '\n'))
		http.NewResponseController(w).Flush() //nolint:errcheck // who has left hears nothing
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, key := range slices.Sorted(maps.Keys(s.items)) {
			send("ADDED", s.items[key])
		}
		send("BOOKMARK", s.bookmark(map[string]string{meta.InitialEventsAnnotationKey: "true"}))
		from = s.version
	}
	http.NewResponseController(w).Flush() //nolint:errcheck // as above
	for drop := s.drop; ; {
		if from < s.compacted {
			send("ERROR", failure(http.StatusGone, meta.StatusReasonExpired))
			return
		}
		for _, e := range s.events {
			if e.version > from {
				send(e.typ, e.object)
				from = e.version
			}
		}
		if s.drop != drop {
			_, _ = w.Write([]byte(`{"type":"MODIFIED","object":{"kin`))
			panic(http.ErrAbortHandler)
		}
		if s.refuses != 0 {
			return
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}
