package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A problem is why a request is not done: an answer that is an error.
type problem struct {
	code                 int
	field, message, hint string
}

func (p *problem) Error() string { return p.message }

// mistakes are a problem of what was to be committed, each with its place.
type mistakes struct {
	problem
	all []string
}

func (m *mistakes) Unwrap() error { return &m.problem }

// mistakesMost is how many mistakes are told.
const mistakesMost = 1000

// wrong says that a parameter of a request is.
func wrong(field, message, hint string) error {
	return &problem{http.StatusBadRequest, field, message, hint}
}

// missing says that there is nothing of that name.
func missing(field, message, hint string) error {
	return &problem{http.StatusNotFound, field, message, hint}
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // a value of ours that JSON does not have
		code, b = http.StatusInternalServerError, bytes.Buffer{}
		_ = e.Encode(api.Error{APIVersion: api.Version, Kind: api.KindError, Message: "the answer cannot be written as JSON"})
	}
	headers(w, "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

// headers are those of all answers.
func headers(w http.ResponseWriter, content string) {
	h := w.Header()
	h.Set("Content-Type", content)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = &problem{code: http.StatusInternalServerError, message: err.Error()}
	}
	said := api.Error{APIVersion: api.Version, Kind: api.KindError, Field: p.field, Message: p.message, Hint: p.hint}
	if m, ok := errors.AsType[*mistakes](err); ok {
		said.Errors = m.all[:min(len(m.all), mistakesMost)]
	}
	answer(w, p.code, said)
}
