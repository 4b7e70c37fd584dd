package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// An EventFilter selects events. The zero value selects all of them.
type EventFilter struct {
	Node  string   // glob for node IDs: ?node=
	Type  string   // a short name or a type URL: ?type=
	Kinds []string // ?kind=, repeated
	After uint64   // only events after this ID: Last-Event-ID; 0: all events that the server remembers
	New   bool     // only future events: ?new=1
	Stop  bool     // only remembered events, then the end: ?stop=1
}

// errStreamEnded reports that the server ended the stream, for example because it stops.
var errStreamEnded = errors.New("the server has ended the stream of events")

// maxEvent is the maximum number of bytes in a line of the stream.
const maxEvent = 1 << 20

// Events asks GET /api/v1/events (SSE). It yields events until ctx is done, the caller stops, or an error
// occurs. The error is the last value. With Stop, the end of the stream is not an error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		q := url.Values{}
		set(q, "node", f.Node)
		set(q, "type", f.Type)
		for _, k := range f.Kinds {
			q.Add("kind", k)
		}
		setBool(q, "new", f.New)
		setBool(q, "stop", f.Stop)
		h := http.Header{"Accept": {"text/event-stream"}}
		if f.After > 0 {
			h.Set("Last-Event-ID", strconv.FormatUint(f.After, 10))
		}
		resp, err := c.open(ctx, http.MethodGet, root+"/events", q, nil, h)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		defer resp.Body.Close()
		err = readEvents(resp.Body, func(e api.Event) bool { return yield(e, nil) })
		switch {
		case errors.Is(err, errEnough), err == nil && f.Stop:
			return
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err == nil:
			err = errStreamEnded
		}
		yield(api.Event{}, &Unreachable{c.shown, err})
	}
}

var errEnough = errors.New("enough")

// readEvents calls f for each event of a stream, until f returns false. It reads only "data:" lines.
// Other lines are comments that keep the connection open, or fields whose values are also in the
// data.
func readEvents(r io.Reader, f func(api.Event) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if more, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(more, []byte(" "))...)
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		var e api.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("invalid event: %w", err)
		}
		data = data[:0]
		if !f(e) {
			return errEnough
		}
	}
	return lines.Err()
}
