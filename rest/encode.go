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

// write sends a response. Polls that get the same resources at about the same time share one
// encoding of these resources. The other parts of a response are encoded for each poll.
func (h *Handler) write(w http.ResponseWriter, r *xds.Response) error {
	a := h.encodings.get(r)
	a.once.Do(func() {
		a.err = errors.New("internal error") // for the other polls, if the encoding panics
		a.json, a.err = h.encodeResources(r.Type, a.resources)
		if a.err != nil {
			h.log.Error("cannot encode a resource as JSON", "type", r.Type.Short, "error", a.err)
		}
	})
	if a.err != nil {
		fail(w, httpError{http.StatusInternalServerError, codes.Internal, a.err.Error()})
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
		panic(err) // each string has a JSON form
	}
	return b
}

// encodeResources encodes resources as a JSON array of Any.
func (h *Handler) encodeResources(t *xds.Type, all []*xds.Resource) ([]byte, error) {
	o := protojson.MarshalOptions{Resolver: h.resolver}
	b := []byte{'['}
	for i, r := range all {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		b, err = o.MarshalAppend(b, &anypb.Any{TypeUrl: t.URL, Value: r.Body})
		if err != nil {
			return nil, fmt.Errorf("%s resource %q: %w", t, r.Name, err)
		}
	}
	return slices.Clip(append(b, ']')), nil
}

// encodings finds an existing encoding while some poll still uses it.
type encodings struct {
	mu        sync.Mutex // held for memory only
	byVersion map[encodingKey]weak.Pointer[encoding]
}

type encodingKey struct{ url, version string }

// An encoding is the JSON of a list of resources. It is immutable once encoded.
type encoding struct {
	resources []*xds.Resource
	once      sync.Once
	json      []byte
	err       error
}

// get returns the encoding of a response's resources. get looks for the encoding by version. It
// also compares the resources, because two groups could have equal versions by accident.
func (c *encodings) get(r *xds.Response) *encoding {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := encodingKey{r.Type.URL, r.Version}
	if a := c.byVersion[k].Value(); a != nil && slices.Equal(a.resources, r.Upserts) {
		return a
	}
	if c.byVersion == nil || len(c.byVersion) > 64 {
		c.byVersion = map[encodingKey]weak.Pointer[encoding]{}
	}
	a := &encoding{resources: r.Upserts}
	c.byVersion[k] = weak.Make(a)
	return a
}
