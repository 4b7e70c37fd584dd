package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A problem is an error answer with its HTTP status.
type problem struct {
	code                 int
	field, message, hint string
}

func (p *problem) Error() string { return p.message }

// mistakes is the problem for an invalid commit. Each finding has its place.
type mistakes struct {
	problem
	all []string
}

func (m *mistakes) Unwrap() error { return &m.problem }

// maxMistakes is the maximum number of findings in an answer.
const maxMistakes = 1000

// wrong returns the error for an invalid parameter.
func wrong(field, message, hint string) error {
	return &problem{http.StatusBadRequest, field, message, hint}
}

// missing returns the error (404) for a parameter whose object does not exist.
func missing(field, message, hint string) error {
	return &problem{http.StatusNotFound, field, message, hint}
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // v has a value that JSON cannot express
		code, b = http.StatusInternalServerError, bytes.Buffer{}
		_ = e.Encode(api.Error{APIVersion: api.Version, Kind: api.KindError, Message: "the answer cannot be written as JSON"})
	}
	headers(w, "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

// headers sets the headers that all answers have.
func headers(w http.ResponseWriter, content string) {
	h := w.Header()
	h.Set("Content-Type", content)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// refuse writes an error as the answer.
func refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = &problem{code: http.StatusInternalServerError, message: err.Error()}
	}
	out := api.Error{APIVersion: api.Version, Kind: api.KindError, Field: p.field, Message: p.message, Hint: p.hint}
	if m, ok := errors.AsType[*mistakes](err); ok {
		out.Errors = m.all[:min(len(m.all), maxMistakes)]
	}
	answer(w, p.code, out)
}
