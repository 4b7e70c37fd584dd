package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// A Wait selects the clients to wait for, and the configuration that they must have accepted.
type Wait struct {
	Filter     Filter        // Node, Group and Type
	Revision   uint64        // ?revision=; 0: the newest
	Stored     string        // ?stored=, such as r412; "": the newest
	MinClients int           // ?min_clients=
	Local      bool          // ask only this server: ?local=1
	Timeout    time.Duration // ?timeout=
}

// ErrNoWait is the error if the server is of a version that does not know the request of [Client.WaitSynced].
var ErrNoWait = errors.New("its version has no /api/v1/wait/synced")

// WaitSynced asks GET /api/v1/wait/synced. It yields the lines of the answer. The last value is a line with
// the result, or an error.
func (c *Client) WaitSynced(ctx context.Context, w Wait) iter.Seq2[api.WaitLine, error] {
	return func(yield func(api.WaitLine, error) bool) {
		q := Filter{Node: w.Filter.Node, Group: w.Filter.Group, Type: w.Filter.Type}.query()
		if w.Revision > 0 {
			q.Set("revision", strconv.FormatUint(w.Revision, 10))
		}
		if w.MinClients > 0 {
			q.Set("min_clients", strconv.Itoa(w.MinClients))
		}
		set(q, "stored", w.Stored)
		setBool(q, "local", w.Local)
		q.Set("timeout", w.Timeout.String())
		resp, err := c.open(ctx, http.MethodGet, root+"/wait/synced", q, nil, nil)
		if refused, is := errors.AsType[*Refused](err); is && refused.Code == http.StatusNotFound && refused.Answer.Field == "" {
			err = ErrNoWait // an unknown group or revision has a field
		}
		if err != nil {
			yield(api.WaitLine{}, err)
			return
		}
		defer resp.Body.Close()
		lines := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
		for {
			var line api.WaitLine
			err := lines.Decode(&line)
			switch {
			case ctx.Err() != nil:
				err = &Unreachable{c.shown, context.Cause(ctx)}
			case errors.Is(err, io.EOF):
				err = &Unreachable{c.shown, errors.New("the server has ended the wait without a result")}
			case err != nil:
				err = &Unreachable{c.shown, fmt.Errorf("not a Chancery, or an incompatible version, answered: %w", err)}
			}
			if !yield(line, err) || err != nil || line.Result != nil {
				return
			}
		}
	}
}
