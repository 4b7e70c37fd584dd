package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxReaders = 32               // maximum of event readers, and separately of waiting requests
	beat       = 15 * time.Second // interval of comments that keep the connection open
	fewEvents  = 25               // maximum number of events of clients in one write to a reader with a pace
)

// An eventFilter selects the events for a reader.
type eventFilter struct {
	node  *glob.Pattern // nil: all
	typ   *xds.Type
	kinds []string
}

func (f eventFilter) keeps(kind, node, typ string) bool {
	return (f.node == nil || f.node.Match(node, nil)) && (f.typ == nil || f.typ.Short == typ) && (len(f.kinds) == 0 || slices.Contains(f.kinds, kind))
}

// events sends events (SSE) until the reader disconnects. A slow reader loses events, and gets the number
// of lost events. The server disconnects a reader that reads nothing for 30 s. A reader with a pace gets at most one
// write in this time, with the newest events of the time.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := eventFilter{q.pattern("node"), q.typ("type"), q.values["kind"]}
	for _, k := range f.kinds {
		if !slices.Contains(kinds, k) {
			q.fail("kind", "unknown kind "+quoted(k), "kinds are "+strings.Join(kinds, ", "))
		}
	}
	after, recent, stop := q.number("after", 1<<63), q.flag("new"), q.flag("stop")
	pace := q.pace()
	if id := r.Header.Get("Last-Event-ID"); id != "" { // a reader that reconnects
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			q.fail("Last-Event-ID", "must be the number of an event", "")
		}
		after, recent = n, false
	}
	if q.err != nil {
		return q.err
	}
	r, leave, err := s.readers.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	if recent {
		if all := s.Tracker.Events(0); len(all) > 0 {
			after = all[len(all)-1].ID
		}
	}
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	headers(w, "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if out.comment("events of Chancery") != nil {
		return nil
	}
	missed, viewer := 0, callerOf(r.Context())
	for {
		all, err := s.nextEvents(r.Context(), after, stop)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) || r.Context().Err() != nil || !viewer.still().Has(roles.View) {
			return nil // the reader has disconnected, or the server ends, or the reader may view no more
		}
		switch {
		case len(all) == 0:
		case pace > 0 && !stop:
			select {
			case <-time.After(time.Until(out.last.Add(pace))):
			case <-r.Context().Done():
				return nil
			}
			var more int
			all, more, after = s.Tracker.Newest(after, fewEvents, f.keeps)
			missed += more
		default:
			after = all[len(all)-1].ID
		}
		left := maxBlamed
		for _, e := range all {
			missed += e.Missed
			if !f.keeps(e.Kind, e.Node, e.Type) {
				continue
			}
			if e.Kind == "nack" && len(e.Resources) > 0 && left > 0 {
				left--
				var of []*api.Resource
				for i := range e.Resources {
					of = append(of, &e.Resources[i])
				}
				s.faults(r.Context(), e.Node, e.Type, e.Text, of)
			}
			e.Missed, missed = missed, 0
			out.add(e)
		}
		if out.idle() {
			out.pending.WriteString(":\n\n")
		}
		if out.flush() != nil || stop {
			return nil
		}
	}
}

// nextEvents returns events after an ID. If stop is true, it returns the remembered events; otherwise
// it waits for the next ones. If there is none for a while, the error is DeadlineExceeded.
func (s *Server) nextEvents(ctx context.Context, after uint64, stop bool) ([]api.Event, error) {
	if stop {
		return s.Tracker.Events(after), nil
	}
	ctx, cancel := context.WithTimeout(ctx, beat)
	defer cancel()
	return s.Tracker.Await(ctx, after)
}

// An eventWriter writes a stream of events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pending bytes.Buffer
	last    time.Time // time of the last write
}

// idle reports whether nothing was written for a while and nothing is pending.
func (o *eventWriter) idle() bool { return o.pending.Len() == 0 && time.Since(o.last) >= beat }

func (o *eventWriter) add(event api.Event) {
	b, err := json.Marshal(event) // JSON has no line breaks, even in its strings
	if err != nil {
		return
	}
	fmt.Fprintf(&o.pending, "id: %d\nevent: %s\ndata: %s\n\n", event.ID, event.Kind, b)
}

func (o *eventWriter) comment(text string) error {
	fmt.Fprintf(&o.pending, ": %s\n\n", text)
	return o.flush()
}

// flush writes the pending events. Each flush gets the full write timeout.
func (o *eventWriter) flush() error {
	if o.pending.Len() == 0 {
		return nil
	}
	o.last = time.Now()
	_ = o.control.SetWriteDeadline(o.last.Add(writeTime)) // not all writers support a deadline
	_, err := o.w.Write(o.pending.Bytes())
	o.pending.Reset()
	if err != nil {
		return err
	}
	return o.control.Flush()
}
