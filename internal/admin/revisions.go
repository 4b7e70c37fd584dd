package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Revisions are those of the store that a server has its configuration from.
type Revisions struct {
	Repo *revisions.Repository

	// Show returns what may be shown of the message of a resource, and whether that is all of it.
	Show func(url string, body []byte) ([]byte, bool)

	Write    bool         // who shows who they are may commit, and change what is served
	Steering api.Steering // which revision is served of a group

	// Review says why this server would not serve a revision (nil: it would), and what is doubtful in it.
	Review func(next *revisions.Snapshot) (wrong, doubts []string)

	// Done is told what was done for whom, and why, that nothing in the head will say. Nil: nobody is.
	Done func(what, author, message string)
	// Refused is told what was not done, for whom it was to be and why, and why it was not. Nil: nobody is.
	Refused func(what, author, message string, err error)
}

// ofStore is the error of a server without one.
func (s *Server) ofStore() error {
	if s.Revisions == nil {
		return missing("", "this server has no store of revisions", "chancery serve --store")
	}
	return nil
}

// plain is the error of a question that takes no parameters, and is for a server with a store.
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
		return wrong("name", "type and name are given both, or none of them", "")
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

// revisionOf is the number in the path of a request; 0: the newest.
func revisionOf(r *http.Request) (revisions.Number, error) {
	text := r.PathValue("rev")
	if text == "head" {
		return 0, nil
	}
	n, err := revisions.ParseNumber(text)
	if err != nil || n == 0 {
		return 0, missing("rev", quoted(text)+" is no revision", "write a number such as r412, or head")
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

// typeInPath is the type in the path of a request.
func typeInPath(r *http.Request) (*xds.Type, error) {
	t := typeOf(r.PathValue("type"))
	if t == nil {
		return nil, missing("type", "unknown type "+quoted(r.PathValue("type")), typesHint())
	}
	return t, nil
}

// revisionItems sends all of a revision, a line each, without what may not be shown.
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
			break // the connection has ended, which who reads knows: there is no last chunk
		}
		l := revisionapi.Shown(it, s.Revisions.Show)
		err = out.Encode(api.RevisionLine{Item: &l})
	}
	return nil
}

// slowly gives each write of a long answer the time of a whole one.
type slowly struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *slowly) Write(b []byte) (int, error) {
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
	return o.w.Write(b)
}

// ofRepository is an error of a repository as an answer.
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
	switch _, told := errors.AsType[*problem](err); {
	case told:
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
		return &problem{code: http.StatusServiceUnavailable, message: "the store: " + err.Error(), hint: "put back what was there; to go back, remove what is in --state-dir of each server and restart it"}
	}
	if errors.Is(err, revisions.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{code: http.StatusServiceUnavailable, message: "the store does not answer: " + err.Error(), hint: "look at the store; chancery status says since when, and what is served stays"}
	}
	return &problem{code: http.StatusInternalServerError, message: "the store: " + err.Error()}
}

const (
	maxCommits = 2                // under way at once: each is in memory
	commitTime = 10 * time.Minute // for all of one
)

// mayCommit lets those commit who show who they are, at a server that was started to take that, and returns
// who they are.
func (s *Server) mayCommit(r *http.Request) (who string, err error) {
	switch err := s.ofStore(); {
	case err != nil:
		return "", err
	case !s.Revisions.Write:
		return "", &problem{code: http.StatusForbidden, message: "this server commits nothing to its store", hint: "chancery serve --store-write has it take commits; or give --store"}
	case !s.proven(r):
		return "", &problem{code: http.StatusForbidden, message: "commits are made for those who show who they are: by a unix socket, a token or a client certificate",
			hint: "--admin-listen unix:///PATH, --admin-token-file or --admin-client-ca; or give --store"}
	}
	return identityOf(r), nil
}

// identityOf says who asks, of those that are let in as proven.
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
	if peer(r) == "unix" {
		return "unix socket"
	}
	return "token"
}

// asksFor reads what somebody wants who may change the store, and has the author say who that is. A check is of the message and the author.
func (s *Server) asksFor(w http.ResponseWriter, r *http.Request, in any, message, author *string, check func(string, ...string) error) error {
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
	leave, err := s.commits.of(r).wait(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(commitTime + writeTime)) // not all writers have one
	in := &steady{in: r.Body, deadline: control.SetReadDeadline, since: time.Now()}
	req, items, err := readCommit(w, in, adminclient.MaxCommit)
	if in.stalled {
		return errStalled
	}
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(in.since.Add(commitTime)) // a connection that ends means that nobody waits for the commit
	who = revisionapi.Claimed(who, req.Author)
	c, err := (&revisionapi.Committer{Repo: s.Revisions.Repo, Review: s.Revisions.review}).Commit(r.Context(), items, *req, who)
	return s.changed(w, "commit", who, req.Message, c, err)
}

// review returns a refusal of this server as a problem.
func (v *Revisions) review(next *revisions.Snapshot) ([]string, error) {
	all, doubts := v.Review(next)
	if all == nil {
		return doubts, nil
	}
	return nil, &mistakes{problem{http.StatusBadRequest, "", "this server would not serve that", ""}, all}
}

// readCommit reads the lines of a commit, of so many bytes at most.
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
	p := &mistakes{problem: problem{http.StatusBadRequest, "item", "there are items that cannot be committed", ""}}
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
			err = errors.New("it is without what may not be shown, and cannot be committed")
		}
		if err == nil && it.Resource != nil { // SotW clients know it by the name in its body
			_, err = wire.NewResource(it.Resource.Type, it.Resource.Name, &anypb.Any{TypeUrl: l.Item.Type, Value: l.Item.Body})
		}
		if err == nil && have[it.Key()] {
			err = errors.New(it.Key().String() + " is there twice")
		}
		if err != nil {
			p.all = append(p.all, revisionapi.Place(*l.Item)+": "+err.Error())
			if len(p.all) == mistakesMost {
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
		return nil, nil, wrong("item", "there is none: nothing is committed", "")
	}
	// What More calls the end may be an error of reading: a part of a commit is none.
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, unread(err, most)
	}
	return req, items, nil
}

const maxNote = 8 << 10 // bytes of each text of a note

func checkNote(message string, others ...string) error {
	if strings.TrimSpace(message) == "" {
		return wrong("message", "is missing: say why, for who reads the history", "")
	}
	return checkTexts(message, others...)
}

func checkTexts(message string, others ...string) error {
	for _, text := range append(others, message) {
		if len(text) > maxNote {
			return wrong("message", "a text of the note is too long", "")
		}
		if strings.ContainsAny(strings.TrimSpace(text), "\n\r") {
			return wrong("message", "each text of the note has one line", "")
		}
	}
	return nil
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	var in api.NoteRequest
	if err := s.asksFor(w, r, &in, &in.Message, &in.Author, checkNote); err != nil {
		return err
	}
	n, err := revisionOf(r)
	if err != nil {
		return err
	}
	if n == 0 {
		return wrong("rev", "must be a number: the newest is served already", "")
	}
	c, err := (&revisionapi.Committer{Repo: s.Revisions.Repo, Review: s.Revisions.review}).Restore(r.Context(), n, revisions.Note{Author: in.Author, Message: in.Message})
	return s.changed(w, "commit", in.Author, in.Message, c, err)
}

// changed answers what became of a change of the store.
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
