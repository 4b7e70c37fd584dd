package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Revisions connects the server with its revision store.
type Revisions struct {
	Repo *revisions.Repository

	// Show returns a resource's message without secrets, and whether that is the whole message.
	Show func(url string, body []byte) ([]byte, bool)

	Write    bool         // callers that have proved their identity may commit, freeze groups and control rollouts
	Steering api.Steering // carries out freezes and rollouts

	// Review checks whether this server would serve a revision. It returns the errors (nil: the server
	// would serve it), and warnings. A restored revision has also warnings of values that Envoy refuses.
	Review func(next *revisions.Snapshot, restored bool) (wrong, doubts []string)

	// Done is called with the author and the reason for each change that the head revision does not
	// record. Nil: not called.
	Done func(what, author, message string)
	// Refused is called for each refused change. Nil: not called.
	Refused func(what, author, message string, err error)
}

// ofStore returns an error if the server has no store.
func (s *Server) ofStore() error {
	if s.Revisions == nil {
		return missing("", "this server has no store of revisions", "chancery serve --store")
	}
	return nil
}

// plain returns an error if the request has parameters or the server has no store.
func (s *Server) plain(r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	return s.ofStore()
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	t, name, limit := q.typ("type"), q.text("name"), q.limit(50)
	switch {
	case q.err != nil:
		return q.err
	case (t == nil) != (name == ""):
		return wrong("name", "type and name must be given together", "")
	}
	if err := s.ofStore(); err != nil {
		return err
	}
	url := ""
	if t != nil {
		url = t.URL
	}
	h, err := revisionapi.History(r.Context(), s.Revisions.Repo, url, name, limit)
	if err != nil {
		return ofRepository(err)
	}
	answer(w, http.StatusOK, h)
	return nil
}

// revisionOf returns the revision in the path of a request; 0 means the newest.
func revisionOf(r *http.Request) (revisions.Number, error) {
	text := r.PathValue("rev")
	if text == "head" {
		return 0, nil
	}
	n, err := revisions.ParseNumber(text)
	if err != nil || n == 0 {
		return 0, missing("rev", quoted(text)+" is not a revision", "write a number such as r412, or head")
	}
	return n, nil
}

func (s *Server) revision(w http.ResponseWriter, r *http.Request) error {
	if err := s.plain(r); err != nil {
		return err
	}
	n, err := revisionOf(r)
	if err != nil {
		return err
	}
	if n == 0 {
		at, err := s.Revisions.Repo.Newest(r.Context())
		if err != nil {
			return ofRepository(err)
		}
		n = at.Number
	}
	rev, err := s.Revisions.Repo.Revision(r.Context(), n)
	if err != nil {
		return ofRepository(err)
	}
	answer(w, http.StatusOK, api.History{APIVersion: api.Version, Kind: api.KindHistory, Items: []api.Revision{revisionapi.Revision(*rev)}})
	return nil
}

func (s *Server) blame(w http.ResponseWriter, r *http.Request) error {
	if err := s.plain(r); err != nil {
		return err
	}
	t, err := typeInPath(r)
	if err != nil {
		return err
	}
	b, err := revisionapi.Blame(r.Context(), s.Revisions.Repo, t.URL, r.PathValue("name"))
	if err != nil {
		return ofRepository(err)
	}
	answer(w, http.StatusOK, b)
	return nil
}

// typeInPath returns the type in the path of a request.
func typeInPath(r *http.Request) (*xds.Type, error) {
	t := typeOf(r.PathValue("type"))
	if t == nil {
		return nil, missing("type", "unknown type "+quoted(r.PathValue("type")), typesHint())
	}
	return t, nil
}

// revisionItems sends all items of a revision, one on each line, with secrets removed.
func (s *Server) revisionItems(w http.ResponseWriter, r *http.Request) error {
	if err := s.plain(r); err != nil {
		return err
	}
	n, err := revisionOf(r)
	if err != nil {
		return err
	}
	at, err := revisionapi.At(r.Context(), s.Revisions.Repo, n)
	if err != nil {
		return ofRepository(err)
	}
	headers(w, linesOfJSON)
	out := json.NewEncoder(&slowly{w, http.NewResponseController(w)})
	out.SetEscapeHTML(false)
	rev := revisionapi.Revision(at.Revision)
	err = out.Encode(api.RevisionLine{Revision: &rev})
	for it := range at.All {
		if err != nil {
			break // without the end mark, the reader knows that the answer is incomplete
		}
		l := revisionapi.Shown(it, s.Revisions.Show)
		err = out.Encode(api.RevisionLine{Item: &l})
	}
	return nil
}

// revisionChanges sends the changes of a revision, with their impact on the clients of this server.
func (s *Server) revisionChanges(w http.ResponseWriter, r *http.Request) error {
	if err := s.plain(r); err != nil {
		return err
	}
	n, err := revisionOf(r)
	if err != nil {
		return err
	}
	out, plan, err := revisionapi.Changes(r.Context(), s.Revisions.Repo, n)
	if err != nil {
		return ofRepository(err)
	}
	if out.Unknown == "" && len(plan) <= maxChanges {
		out.Impact = s.impactKnown(r.Context(), plan)
	}
	answer(w, http.StatusOK, out)
	return nil
}

// A slowly gives each write of a long answer the full write timeout.
type slowly struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *slowly) Write(b []byte) (int, error) {
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTime)) // not all writers support a deadline
	return o.w.Write(b)
}

// ofRepository converts an error of a repository to an answer.
func ofRepository(err error) error {
	if p, is := errors.AsType[*revisionapi.Problem](err); is {
		code := http.StatusBadRequest
		switch {
		case errors.Is(p, revisions.ErrNotFound):
			code = http.StatusNotFound
		case errors.Is(p, revisions.ErrConflict):
			code = http.StatusConflict
		case errors.Is(p, revisionapi.ErrCannot):
			code = http.StatusUnprocessableEntity
		}
		return &problem{code: code, field: p.Field, message: p.Text, hint: p.Hint}
	}
	switch _, is := errors.AsType[*problem](err); {
	case is:
		return err
	case errors.Is(err, context.Canceled):
		return errEnding
	case errors.Is(err, revisions.ErrUnknown):
		return &problem{code: http.StatusInternalServerError, message: err.Error(), hint: "chancery history shows whether it was committed"}
	case errors.Is(err, revisions.ErrConflict):
		return &problem{code: http.StatusConflict, message: err.Error(), hint: "see the changes with chancery history, and try again"}
	case errors.Is(err, revisions.ErrNotFound):
		return missing("", err.Error(), "chancery history lists the kept revisions")
	case errors.Is(err, revisions.ErrBackwards):
		return &problem{code: http.StatusServiceUnavailable, message: "the store: " + err.Error(), hint: revisionapi.Remedy(err)}
	}
	if errors.Is(err, revisions.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{code: http.StatusServiceUnavailable, message: "the store does not answer: " + err.Error(), hint: "look at the store; the served configuration stays (see chancery status)"}
	}
	return &problem{code: http.StatusInternalServerError, message: "the store: " + err.Error(), hint: revisionapi.Remedy(err)}
}

const (
	maxCommits  = 2                // maximum number of concurrent commits, because each is in memory
	largeCommit = 1 << 20          // bytes; maxCommits large commits may arrive at the same time
	commitTime  = 10 * time.Minute // maximum duration of a commit
)

// mayCommit returns the identity of the caller. It returns an error if the caller has not proved its
// identity, or if the server accepts no commits.
func (s *Server) mayCommit(r *http.Request) (who string, err error) {
	switch err := s.ofStore(); {
	case err != nil:
		return "", err
	case !s.Revisions.Write:
		return "", &problem{code: http.StatusForbidden, message: "this server does not accept commits", hint: "run it with chancery serve --store-write, or use --store"}
	case !s.proven(r):
		return "", &problem{code: http.StatusForbidden, message: "committing needs a unix socket, a token or a client certificate",
			hint: "--admin-listen unix:///PATH, --admin-token-file or --admin-client-ca; or give --store"}
	}
	return callerOf(r.Context()).name, nil
}

// mayChange returns a function that decides whether the caller may change items. The definition of a group chooses
// its nodes, which may be those of other groups. So it needs the role for all groups.
func (s *Server) mayChange(ctx context.Context) func([]revisions.Key) error {
	return func(changed []revisions.Key) error {
		groups := map[string]bool{}
		for _, k := range changed {
			groups[k.Group] = true
		}
		if err := s.may(ctx, roles.Commit, slices.Sorted(maps.Keys(groups))...); err != nil {
			return err
		}
		for _, k := range changed {
			if k.Type == "" {
				return s.mayAll(ctx, roles.Commit, "the commit changes the "+k.String()+", which chooses nodes")
			}
		}
		return nil
	}
}

// identityOf returns the identity of a caller that has proved it.
func identityOf(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		switch {
		case len(leaf.URIs) > 0:
			return leaf.URIs[0].String()
		case len(leaf.DNSNames) > 0:
			return "certificate of " + leaf.DNSNames[0]
		}
		return "certificate of " + leaf.Subject.String()
	}
	if sender(r) == "unix" {
		return "unix socket"
	}
	return "token"
}

// readChange reads a request to change the store, and adds the caller's identity to the author. The
// function check validates the message and the author.
func (s *Server) readChange(w http.ResponseWriter, r *http.Request, in any, message, author *string, check func(string, ...string) error) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	who, err := s.mayCommit(r)
	if err == nil {
		err = body(w, r, maxBody, in)
	}
	if err == nil {
		err = check(*message, *author)
	}
	*author = revisionapi.Claimed(who, *author)
	return err
}

func (s *Server) commit(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	who, err := s.mayCommit(r)
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(commitTime + writeTime)) // not all writers support a deadline
	in := &steady{in: r.Body, deadline: control.SetReadDeadline, since: time.Now()}
	body, large, done, err := s.commitBody(r, in)
	if err != nil {
		return err
	}
	defer done()
	door := &s.commits
	if large { // it takes no place of other commits while it arrives
		door = &s.largeCommits
	}
	leave, err := door.wait(r)
	if err != nil {
		return err
	}
	defer leave()
	req, items, err := readCommit(w, body, adminclient.MaxCommit)
	if in.stalled {
		return errStalled
	}
	if err != nil {
		return err
	}
	if large {
		leave, err := s.commits.wait(r)
		if err != nil {
			return err
		}
		defer leave()
	}
	_ = control.SetReadDeadline(in.since.Add(commitTime)) // the end of the connection cancels the commit
	who = revisionapi.Claimed(who, req.Author)
	c, err := (&revisionapi.Committer{Repo: s.Revisions.Repo, Review: s.Revisions.review, May: s.mayChange(r.Context())}).Commit(r.Context(), items, *req, who)
	return s.changed(w, "commit", who, req.Message, c, err)
}

// commitBody reads the first bytes of a commit. A commit that is not large is complete then, and its bytes count
// against the budget of bodies until the caller calls done.
func (s *Server) commitBody(r *http.Request, in *steady) (body io.Reader, large bool, done func(), _ error) {
	first := s.bodies.Body(in, addressOf(r), func() { _ = in.deadline(time.Unix(1, 0)) })
	b, err := io.ReadAll(io.LimitReader(first, largeCommit))
	large = len(b) == largeCommit
	if err != nil || large {
		_ = first.Close()
	}
	switch {
	case in.stalled:
		return nil, false, nil, errStalled
	case err != nil:
		return nil, false, nil, unread(err, adminclient.MaxCommit)
	case large:
		return io.MultiReader(bytes.NewReader(b), in), true, func() {}, nil
	}
	return bytes.NewReader(b), false, func() { _ = first.Close() }, nil
}

// reviewRestored returns an error if this server would not serve the revision.
func (v *Revisions) reviewRestored(next *revisions.Snapshot) ([]string, error) {
	return v.examine(next, true)
}

// review is reviewRestored for a new revision.
func (v *Revisions) review(next *revisions.Snapshot) ([]string, error) { return v.examine(next, false) }

func (v *Revisions) examine(next *revisions.Snapshot, restored bool) ([]string, error) {
	all, doubts := v.Review(next, restored)
	if all == nil {
		return doubts, nil
	}
	return nil, &mistakes{problem{http.StatusBadRequest, "", "this server would not serve that", ""}, all}
}

// readCommit reads the lines of a commit. The argument most is the maximum size in bytes.
func readCommit(w http.ResponseWriter, in io.Reader, most int64) (*api.CommitRequest, []*revisions.Item, error) {
	d := json.NewDecoder(bufio.NewReader(http.MaxBytesReader(w, io.NopCloser(in), most)))
	d.DisallowUnknownFields()
	var first api.RevisionLine
	if err := d.Decode(&first); err != nil {
		return nil, nil, unread(err, most)
	}
	req := first.Commit
	if req == nil || first.Item != nil {
		return nil, nil, wrong("commit", "the first line must have it", `{"commit": {"message": "why"}}`)
	}
	if err := checkNote(req.Message, req.Author, req.Source); err != nil {
		return nil, nil, err
	}
	if err := revisionapi.Forged(req.Source); err != nil {
		return nil, nil, wrong("commit.source", err.Error(), "")
	}
	if req.IfHead != "" {
		if _, err := revisions.ParseNumber(req.IfHead); err != nil {
			return nil, nil, wrong("commit.if_head", err.Error(), "")
		}
	}
	var items []*revisions.Item
	have := map[revisions.Key]bool{}
	p := &mistakes{problem: problem{http.StatusBadRequest, "item", "some items are invalid", ""}}
	for d.More() {
		var l api.RevisionLine
		if err := d.Decode(&l); err != nil {
			return nil, nil, unread(err, most)
		}
		if l.Item == nil || l.Commit != nil || l.Revision != nil {
			return nil, nil, wrong("item", "each line but the first must have one", "")
		}
		it, err := revisionapi.Item(*l.Item)
		if err == nil && l.Item.Redacted {
			err = errors.New("redacted items cannot be committed: they lack their secrets")
		}
		if err == nil && it.Resource != nil { // a SotW client reads the name from the body
			_, err = wire.NewResource(it.Resource.Type, it.Resource.Name, &anypb.Any{TypeUrl: l.Item.Type, Value: l.Item.Body})
		}
		if err == nil && have[it.Key()] {
			err = errors.New(it.Key().String() + " is there twice")
		}
		if err != nil {
			p.all = append(p.all, revisionapi.Place(*l.Item)+": "+err.Error())
			if len(p.all) == maxMistakes {
				break
			}
			continue
		}
		have[it.Key()] = true
		items = append(items, it)
	}
	switch {
	case p.all != nil:
		return nil, nil, p
	case len(items) == 0:
		return nil, nil, wrong("item", "the commit has no items", "")
	}
	// Only io.EOF is the end of a complete commit: More also returns false after a read error.
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, unread(err, most)
	}
	return req, items, nil
}

const maxNote = 8 << 10 // maxNote limits the bytes of each text of a note.

func checkNote(message string, others ...string) error {
	if strings.TrimSpace(message) == "" {
		return wrong("message", "is missing: give the reason, for readers of the history", "")
	}
	return checkTexts(message, others...)
}

func checkTexts(message string, others ...string) error {
	for _, text := range append(others, message) {
		if len(text) > maxNote {
			return wrong("message", "too long", "")
		}
		if strings.ContainsAny(strings.TrimSpace(text), "\n\r") {
			return wrong("message", "each text of the note has one line", "")
		}
	}
	return nil
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	var in api.NoteRequest
	if err := s.readChange(w, r, &in, &in.Message, &in.Author, checkNote); err != nil {
		return err
	}
	n, err := revisionOf(r)
	if err != nil {
		return err
	}
	if n == 0 {
		return wrong("rev", "must be a number: the newest is served already", "")
	}
	c, err := (&revisionapi.Committer{Repo: s.Revisions.Repo, Review: s.Revisions.reviewRestored, May: s.mayChange(r.Context())}).Restore(r.Context(), n, revisions.Note{Author: in.Author, Message: in.Message})
	return s.changed(w, "commit", in.Author, in.Message, c, err)
}

// changed answers with the result of a change of the store.
func (s *Server) changed(w http.ResponseWriter, what, who, message string, done any, err error) error {
	if err != nil {
		if s.Revisions.Refused != nil {
			s.Revisions.Refused(what, who, message, err)
		}
		return ofRepository(err)
	}
	answer(w, http.StatusOK, done)
	return nil
}
