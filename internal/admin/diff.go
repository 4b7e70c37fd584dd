package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/source/dir"
)

// diffTime is the maximum time of a comparison. It reads revisions or files.
const diffTime = 20 * time.Second

func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	ask := DiffQuery{From: cmp.Or(q.text("from"), "served"), To: q.text("to"), Name: q.text("name"), Group: q.text("group"), Limit: q.limit(200)}
	if t := q.typ("type"); t != nil {
		ask.Type = t.URL
	}
	switch {
	case ask.To == "":
		q.fail("to", "is missing", "such as rev:head, files or client:NODE")
	case ask.Name != "" && ask.Type == "":
		q.fail("type", "is needed with a name", "")
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), diffTime)
	defer cancel()
	d, err := s.Explainer.Diff(ctx, ask)
	if err != nil {
		return compared(err)
	}
	d.APIVersion, d.Kind, d.Items = api.Version, api.KindDiff, some(d.Items)
	answer(w, http.StatusOK, d)
	return nil
}

// compared converts an error of a comparison to a problem.
func compared(err error) error {
	if all, ok := errors.AsType[dir.Errors](err); ok {
		m := &mistakes{problem: problem{code: http.StatusUnprocessableEntity, message: "the files have errors, so they cannot be compared", hint: "chancery check"}}
		for _, p := range all {
			m.all = append(m.all, p.Error())
		}
		return m
	}
	if _, ok := errors.AsType[*NotFound](err); ok {
		return asked(err)
	}
	return ofRepository(err)
}
