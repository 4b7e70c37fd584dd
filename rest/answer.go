package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// write sends an answer. The resources are encoded once for all who are told the
// same at about the same time; what is each one's own surrounds them.
func (h *Handler) write(w http.ResponseWriter, r *xds.Response) error {
	a := h.answers.get(r)
	a.once.Do(func() {
		a.err = errors.New("internal error") // what others are told if this panics
		a.json, a.err = h.resources(r.Type, a.of)
		if a.err != nil {
			h.log.Error("a resource cannot be written as JSON", "type", r.Type.Short, "error", a.err)
		}
	})
	if a.err != nil {
		fail(w, failure{http.StatusInternalServerError, codes.Internal, a.err.Error()})
		return a.err
	}
	head := fmt.Appendf(nil, `{"versionInfo":%s,"resources":`, quote(r.Version))
	tail := fmt.Appendf(nil, `,"typeUrl":%s,"nonce":%s`, quote(r.Type.URL), quote(r.Nonce))
	if id := h.server.Identifier(); id != "" {
		tail = fmt.Appendf(tail, `,"controlPlane":{"identifier":%s}`, quote(id))
	}
	tail = append(tail, "}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(a.json)+len(tail)))
	w.WriteHeader(http.StatusOK)
	for _, b := range [][]byte{head, a.json, tail} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is without a JSON
	}
	return b
}

// resources encodes resources as a JSON array of Any.
func (h *Handler) resources(t *xds.Type, all []*xds.Resource) ([]byte, error) {
	o := protojson.MarshalOptions{Resolver: h.resolver}
	b := []byte{'['}
	for i, r := range all {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = o.MarshalAppend(b, &anypb.Any{TypeUrl: t.URL, Value: r.Body}); err != nil {
			return nil, fmt.Errorf("%s resource %q: %w", t, r.Name, err)
		}
	}
	return slices.Clip(append(b, ']')), nil
}

// answers finds answers again for as long as one who is told them keeps them.
type answers struct {
	mu   sync.Mutex // held for memory only
	last map[key]weak.Pointer[answer]
}

type key struct{ url, version string }

// An answer is the JSON of resources. It is immutable once it was made.
type answer struct {
	of   []*xds.Resource
	once sync.Once
	json []byte
	err  error
}

// get returns the answer with the resources of a response. The version finds
// it; that they are the same resources, and not another group's by accident, is
// looked at.
func (c *answers) get(r *xds.Response) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{r.Type.URL, r.Version}
	if a := c.last[k].Value(); a != nil && slices.Equal(a.of, r.Upserts) {
		return a
	}
	if c.last == nil || len(c.last) > 64 {
		c.last = map[key]weak.Pointer[answer]{}
	}
	a := &answer{of: r.Upserts}
	c.last[k] = weak.Make(a)
	return a
}
