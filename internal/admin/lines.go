package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/text/jsonscan"
)

// linesOfJSON is the content type of a stream of JSON objects, one on each line.
const linesOfJSON = "application/x-ndjson"

const maxLine = 16 << 10 // bytes of a line

// streamEndpoints registers endpoints line by line, until the stream ends. Each line renews the lease,
// even an empty line. Lines that arrive together get one line as their answer.
func (s *Server) streamEndpoints(w http.ResponseWriter, r *http.Request) error {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // send answers, including errors, while the client still sends the body
		w.Header().Set("Connection", "close")                // allow no further request: the unread rest of the body may follow, and wake leaves an expired read deadline
	}
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	ttl, err := ttlOf("ttl", q.text("ttl"))
	if err != nil {
		return err
	}
	f, r, leave, err := s.feed(w, r)
	if err != nil {
		return err
	}
	defer leave()
	if err := f.open(ttl); err != nil {
		return s.registering(err, "")
	}
	f.form = &lines{in: bufio.NewReaderSize(r.Body, maxLine), w: w}
	headers(w, linesOfJSON)
	w.WriteHeader(http.StatusOK)
	_ = f.control.Flush()
	_ = f.serve(r, "lines", ttl)
	return nil
}

// lines reads a stream of endpoints as lines of JSON, and writes the answers as lines of JSON. It
// implements form.
type lines struct {
	in  *bufio.Reader
	w   http.ResponseWriter
	n   int   // number of lines read
	end error // the reason why no more lines are read; nil: read more
}

func (l *lines) ready() bool {
	here, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(here, '\n') >= 0
}

func (l *lines) read() (input, error) {
	if l.end != nil {
		return input{}, l.end
	}
	l.n++
	text, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.end = fmt.Errorf("line %d has more than %d bytes", l.n, maxLine)
		return input{size: maxLine, err: wrong("", fmt.Sprintf("must have at most %d bytes: the stream ends", maxLine), "")}, nil
	}
	one := input{size: len(text), parts: jsonscan.Values(text)}
	text = bytes.TrimSpace(text)
	if err != nil && (len(text) == 0 || !errors.Is(err, io.EOF)) { // a read error, or the end without a last line; the last line needs no line break
		return input{}, err
	}
	one.packed = bytes.Clone(text)
	return one, nil
}

func (l *lines) unpack(one *input) {
	if len(one.packed) > 0 {
		var op endpoints.Op
		op, one.fault, one.err = parseLine(one.packed)
		if one.fault == nil {
			one.steps = []endpoints.Op{op}
		}
	}
}

func parseLine(line []byte) (op endpoints.Op, fault *string, err error) {
	var in struct {
		api.EndpointLine
		Replace []json.RawMessage `json:"replace"` // decoded one by one
	}
	err = decode(line, &in)
	if err != nil {
		return op, nil, unread(err, maxLine)
	}
	op = endpoints.Op{Cluster: endpoints.Cluster{Group: in.Group, Name: in.Cluster}, ID: in.Remove, Release: in.Release}
	changes := 0
	for _, is := range []bool{in.Put != nil, in.Remove != "", in.Replace != nil, in.Release, in.Fault != nil} {
		if is {
			changes++
		}
	}
	switch {
	case changes != 1:
		return op, nil, wrong("", "must have exactly one of put, remove, replace and release", "")
	case in.Put != nil:
		if in.Put.TTL != "" {
			return op, nil, wrong("put.ttl", "must be empty: the TTL of the stream applies", "")
		}
		e, err := registered(*in.Put)
		op.ID, op.Endpoint = e.ID, &e.Endpoint
		return op, nil, err
	case in.Replace != nil:
		op.Replace = registeredAll(in.Replace, "must be empty: the TTL of the stream applies")
	}
	return op, in.Fault, nil
}

func (l *lines) answer(n int, lost bool, wrong []refused) error {
	out := api.EndpointLines{Line: n, Lost: lost}
	for _, one := range wrong {
		out.Errors = append(out.Errors, api.LineError{Line: one.n, Field: one.field, Message: one.message})
	}
	b, _ := json.Marshal(out)
	_, err := l.w.Write(append(b, '\n'))
	return err
}
