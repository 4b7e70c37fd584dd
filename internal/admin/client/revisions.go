package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Revisions asks GET /api/v1/revisions, newest first. With a type and a name, the list has only revisions
// that changed this resource. A limit of 0 means the server's default.
func (c *Client) Revisions(ctx context.Context, typ, name string, limit int) (*api.History, error) {
	q := url.Values{}
	set(q, "type", typ)
	set(q, "name", name)
	setLimit(q, limit)
	return ask[api.History](ctx, c, http.MethodGet, root+"/revisions", q, nil)
}

// Blame asks GET /api/v1/blame/{type}/{name}.
func (c *Client) Blame(ctx context.Context, typ, name string) (*api.Blame, error) {
	return ask[api.Blame](ctx, c, http.MethodGet, root+"/blame"+below(typ, name), nil, nil)
}

// RevisionItems asks GET /api/v1/revisions/{rev}/items: all items of a revision, such as r412 or head, with
// secrets removed.
func (c *Client) RevisionItems(ctx context.Context, rev string) (*api.Revision, []api.RevisionItem, error) {
	resp, err := c.open(ctx, http.MethodGet, root+"/revisions/"+api.Segment(rev)+"/items", nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	of, items, err := readItems(bufio.NewReader(io.LimitReader(resp.Body, maxAnswer)))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, &Unreachable{c.shown, fmt.Errorf("the answer was cut off: %w", err)}
	}
	return of, items, nil
}

func readItems(in io.Reader) (*api.Revision, []api.RevisionItem, error) {
	var first api.RevisionLine
	lines := json.NewDecoder(in)
	if err := lines.Decode(&first); err != nil || first.Revision == nil {
		return nil, nil, errors.Join(err, errors.New("first line has no revision"))
	}
	var all []api.RevisionItem
	for {
		var l api.RevisionLine
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return first.Revision, all, nil
		case err != nil:
			return nil, nil, err
		case l.Item != nil:
			all = append(all, *l.Item)
		}
	}
}

// MaxCommit is the maximum size of a commit in bytes of NDJSON. The bodies in it are base64.
const MaxCommit = 96 << 20

// ErrTooLarge reports that a commit is larger than MaxCommit.
var ErrTooLarge = fmt.Errorf("more than %d MiB, when encoded for the admin API", MaxCommit>>20)

// Commit asks POST /api/v1/revisions.
func (c *Client) Commit(ctx context.Context, request api.CommitRequest, items []api.RevisionItem) (*api.Commit, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(api.RevisionLine{Commit: &request})
	for i := 0; i < len(items) && err == nil; i++ {
		err = e.Encode(api.RevisionLine{Item: &items[i]})
		if err == nil && b.Len() > MaxCommit {
			err = ErrTooLarge
		}
	}
	if err != nil {
		return nil, err
	}
	return ask[api.Commit](ctx, c, http.MethodPost, root+"/revisions", nil, ndjson(b.Bytes()))
}

// Restore asks POST /api/v1/revisions/{rev}/restore.
func (c *Client) Restore(ctx context.Context, rev string, n api.NoteRequest) (*api.Commit, error) {
	return ask[api.Commit](ctx, c, http.MethodPost, root+"/revisions/"+api.Segment(rev)+"/restore", nil, n)
}
