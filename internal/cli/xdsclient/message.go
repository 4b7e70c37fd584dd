package xdsclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// A Message is one line of output about the exchange between a client and an xDS server: a request, a
// response, or the change of a resource.
type Message struct {
	At      time.Time       `json:"at"`
	Kind    string          `json:"kind"`
	Server  string          `json:"server,omitempty"`
	Type    string          `json:"type,omitempty"`
	Names   []string        `json:"names,omitempty"`
	Removed []string        `json:"removed,omitempty"`
	Version string          `json:"version,omitempty"`
	Nonce   string          `json:"nonce,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Error   string          `json:"error,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// MessageOf returns the message for a step.
func MessageOf(step fetch.Step, s *Server) *Message {
	m := &Message{At: step.At}
	if step.Type != nil {
		m.Type = step.Type.String()
	}
	switch {
	case step.End != nil:
		m.Kind, m.Error = "lost", s.explain(step.End).text
	case step.Response != nil:
		m.response(step.Response)
	case step.Request != nil:
		m.request(step.Request)
	default:
		m.event(step.Event)
	}
	return m
}

func (m *Message) response(r *xds.Response) {
	m.Kind, m.Version, m.Nonce = "response", r.Version, r.Nonce
	for _, err := range r.Malformed {
		m.Error += err.Error() + "\n"
	}
	for _, e := range r.Errors {
		m.Error += e.Name + ": " + e.Status.Message + "\n"
	}
	if r.Changes == nil {
		return
	}
	for _, u := range r.Upserts {
		m.Names = append(m.Names, u.Name)
		m.Bytes += len(u.Body)
	}
	m.Removed = append(append(append(m.Removed, r.Removed...), r.Absent...), r.Missing...)
}

// Malformed turns m into a message about the malformed resources of a response. It returns true if the
// response has malformed resources, and their errors differ from the last printed errors of the type.
func (m *Message) Malformed(r *xds.Response, told map[string]string) bool {
	if r == nil {
		return false
	}
	was := told[m.Type]
	told[m.Type] = ""
	if len(r.Malformed) == 0 {
		return false
	}
	*m = Message{At: m.At, Kind: "malformed", Type: m.Type, Version: m.Version, Error: errors.Join(r.Malformed...).Error()}
	told[m.Type] = m.Error
	return m.Error != was
}

func (m *Message) request(r *xds.Request) {
	m.Kind, m.Version, m.Nonce = "request", r.Version, r.Nonce
	switch {
	case r.Error != nil:
		m.Kind, m.Error = "nack", r.Error.Message
	case r.Nonce != "":
		m.Kind = "ack"
	}
	m.Names, m.Removed = append(m.Names, r.Names...), r.Unsubscribe
	m.Names = append(m.Names, r.Subscribe...)
	if m.Kind == "request" && len(m.Names) == 0 && len(m.Removed) == 0 {
		m.Names = []string{xds.Wildcard} // an empty list in the first request of a type is a wildcard
	}
}

func (m *Message) event(e *client.Event) {
	m.Kind, m.Names = e.Kind.String(), []string{e.Name}
	if e.Resource != nil {
		m.Version = e.Resource.Version
	}
	if e.Kind == client.Updated {
		m.Bytes = len(e.Resource.Body)
	}
	if e.Err != nil {
		m.Error = e.Err.Error()
	}
}

// Print prints the message: time, kind, resources.
func (m *Message) Print(w io.Writer, jsonl bool) {
	if jsonl {
		_ = textutil.WriteJSON(w, m, "") // fails only if the reader of w has ended
		return
	}
	words := []string{m.At.Local().Format("15:04:05.000"), fmt.Sprintf("%-11s", m.Kind)}
	add := func(lead, text string) {
		if text != "" {
			words = append(words, lead+text)
		}
	}
	add("", m.Server)
	add("", m.Type)
	add("", namesText(m.Names))
	if len(m.Removed) > 0 {
		add("removed=", namesText(m.Removed))
	}
	add("version=", cli.ShortVersion(m.Version))
	add("nonce=", m.Nonce)
	if m.Bytes > 0 {
		add("", cli.BytesText(m.Bytes))
	}
	add("", strings.TrimSpace(m.Error))
	fmt.Fprintln(w, textutil.Line(strings.Join(words, " ")))
}

// namesText returns a text with the first names of a list, and the number of the others.
func namesText(names []string) string {
	const most = 3
	text := strings.Join(names[:min(most, len(names))], ",")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %s more", textutil.Number(more))
	}
	return text
}
