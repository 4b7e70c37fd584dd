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

// Revisions asks GET /api/v1/revisions: the newest, at most limit (0: the server's), those that changed a resource if
// a type is given.
func (d *Client) Revisions(ctx context.Context, typ, name string, limit int) (*api.History, error) {
	q := url.Values{}
	set(q, "type", typ)
	set(q, "name", name)
	setLimit(q, limit)
	return ask[api.History](ctx, d, http.MethodGet, root+"/revisions", q, nil)
}

// Blame asks GET /api/v1/blame/{type}/{name}.
func (d *Client) Blame(ctx context.Context, typ, name string) (*api.Blame, error) {
	return ask[api.Blame](ctx, d, http.MethodGet, root+"/blame"+below(typ, name), nil, nil)
}

// RevisionItems asks GET /api/v1/revisions/{rev}/items: all of a revision, such as r412 or head, without what may not be
// shown.
func (d *Client) RevisionItems(ctx context.Context, rev string) (*api.Revision, []api.RevisionItem, error) {
	resp, err := d.open(ctx, http.MethodGet, root+"/revisions/"+segment(rev)+"/items", nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	of, items, err := readItems(bufio.NewReader(io.LimitReader(resp.Body, maxAnswer)))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, &Unreachable{d.shown, fmt.Errorf("the answer was cut off: %w", err)}
	}
	return of, items, nil
}

func readItems(in io.Reader) (*api.Revision, []api.RevisionItem, error) {
	var first api.RevisionLine
	lines := json.NewDecoder(in)
	if err := lines.Decode(&first); err != nil || first.Revision == nil {
		return nil, nil, errors.Join(err, errors.New("there is no revision in it"))
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

// MaxCommit is how many bytes the lines of a commit have at most. Bodies are in base64.
const MaxCommit = 96 << 20

// ErrTooLarge says that a commit has more bytes.
var ErrTooLarge = fmt.Errorf("more than %d MiB, encoded for the admin API", MaxCommit>>20)

// Commit asks POST /api/v1/revisions.
func (d *Client) Commit(ctx context.Context, c api.CommitRequest, items []api.RevisionItem) (*api.Commit, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(api.RevisionLine{Commit: &c})
	for i := 0; i < len(items) && err == nil; i++ {
		if err = e.Encode(api.RevisionLine{Item: &items[i]}); err == nil && b.Len() > MaxCommit {
			err = ErrTooLarge
		}
	}
	if err != nil {
		return nil, err
	}
	return ask[api.Commit](ctx, d, http.MethodPost, root+"/revisions", nil, lines(b.Bytes()))
}

// Restore asks POST /api/v1/revisions/{rev}/restore.
func (d *Client) Restore(ctx context.Context, rev string, n api.NoteRequest) (*api.Commit, error) {
	return ask[api.Commit](ctx, d, http.MethodPost, root+"/revisions/"+segment(rev)+"/restore", nil, n)
}
