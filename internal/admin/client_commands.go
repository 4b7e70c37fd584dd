package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// commandSize is the maximum size of another server's answer to a command for clients.
const commandSize = 64 << 10

// A clientCommand is a request of an operator about the streams of one client, or of all clients of a
// group.
type clientCommand struct {
	name        string // "resync" or "disconnect"
	node, group string // one of both
	in          api.ClientRequest
	typ         *xds.Type // nil: all types
}

// commandClients returns the handler of a command for clients.
func (s *Server) commandClients(name string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := queryOf(r)
		all := q.flag(paramAll.name)
		if q.err != nil {
			return q.err
		}
		c, err := s.clientCommand(w, r, name)
		if err != nil {
			return err
		}
		out, err := s.commandHere(r, c)
		if all && s.Replicas != nil {
			out, err = s.commandOthers(r, c, out, err)
		}
		if err != nil {
			return err
		}
		answer(w, http.StatusOK, out)
		return nil
	}
}

// clientCommand reads a command. The caller must have proved its identity: a command interrupts clients.
func (s *Server) clientCommand(w http.ResponseWriter, r *http.Request, name string) (*clientCommand, error) {
	c := &clientCommand{name: name, node: r.PathValue("node"), group: r.PathValue("group")}
	if !s.proven(r) {
		return nil, &problem{http.StatusForbidden, "", name + " needs a unix socket, a token or a client certificate",
			"run chancery " + name + " on the machine and as the user of the server; or --admin-listen unix:///PATH, --admin-token-file, --admin-client-ca"}
	}
	if err := body(w, r, maxBody, &c.in); err != nil {
		return nil, err
	}
	if err := checkTexts(c.in.Author); err != nil {
		return nil, err
	}
	c.in.Author = revisionapi.Claimed(callerOf(r.Context()).name, c.in.Author)
	switch {
	case name != "resync" && c.in.Type+c.in.Name != "":
		return nil, wrong("type", name+" takes neither type nor name", "")
	case c.in.Type == "" && c.in.Name != "":
		return nil, wrong("type", "is needed with a name", "")
	case c.in.Type != "":
		c.typ = typeOf(c.in.Type)
		if c.typ == nil {
			return nil, wrong("type", "unknown type "+quoted(c.in.Type), typesHint())
		}
	}
	return c, nil
}

// commandHere carries out a command for the streams of this server.
func (s *Server) commandHere(r *http.Request, c *clientCommand) (out api.ClientCommand, err error) {
	out = api.ClientCommand{APIVersion: api.Version, Kind: api.KindClientCommand, Command: c.name, Node: c.node, Group: c.group}
	err = s.mayCommand(r.Context(), c)
	switch {
	case err != nil:
	case c.group != "":
		err = s.commandGroup(c, &out)
	default:
		err = s.commandNode(r.Context(), c, &out)
	}
	if err == nil {
		n := 0
		for _, t := range out.Types {
			n += t.Resources + t.Released
		}
		s.log().Info("client command requested", "command", c.name, "node", textutil.Head(c.node, maxWords), "group", textutil.Head(c.group, maxWords), "type", textutil.Head(c.in.Type, maxWords), "name", textutil.Head(c.in.Name, maxWords),
			"streams", out.Streams, "resources", n, "over", out.Over, "author", c.in.Author, "by", callerOf(r.Context()).name, "peer", sender(r))
		s.did(r, c.name+" of "+cmp.Or(c.node, "group "+c.group))
	}
	return out, err
}

// mayCommand returns an error unless the caller may operate the group of a command, or one group of the client. An
// unknown client is no error.
func (s *Server) mayCommand(ctx context.Context, c *clientCommand) error {
	if c.group != "" {
		return s.may(ctx, roles.Operate, c.group)
	}
	rights := callerOf(ctx).rights
	for _, is := range s.Tracker.Client(c.node) {
		one := func(group string) bool { return rights.Allows(roles.Operate, group) }
		switch {
		case is.Left != nil, rights.HasAll(roles.Operate), slices.ContainsFunc(is.Groups, one):
		case len(is.Groups) == 0:
			return s.mayAll(ctx, roles.Operate, "the client has no group")
		default:
			return s.lacks(callerOf(ctx), "lacks the role operate for each group of the client: "+quotedAll(is.Groups), bindHint)
		}
	}
	return nil
}

func (s *Server) commandNode(ctx context.Context, c *clientCommand, out *api.ClientCommand) error {
	streams := s.Tracker.Streams(c.node)
	if len(streams) == 0 {
		if all := s.Tracker.Client(c.node); len(all) > 0 && all[0].Left != nil {
			return missing("node", fmt.Sprintf("the client %s is not connected: it left at %s", quoted(c.node), all[0].Left.At.UTC().Format(time.RFC3339)),
				"it gets its resources when it connects; chancery status NODE shows why it left")
		}
		return s.unknownNode(c.node)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, st := range streams {
		if c.name == "disconnect" {
			if st.Disconnect() {
				out.Streams++
			}
			continue
		}
		sent, err := s.resync(ctx, st, c)
		if err != nil {
			return asked(err)
		}
		if len(sent) > 0 {
			out.Streams++
		}
		out.Types = addSent(out.Types, sent)
	}
	if out.Streams == 0 {
		what := "any resource"
		switch {
		case c.in.Name != "":
			what = fmt.Sprintf("%s %s", c.typ, quoted(c.in.Name))
		case c.typ != nil:
			what = fmt.Sprintf("any %s", c.typ)
		}
		if c.name == "disconnect" {
			return missing("node", "all streams of "+quoted(c.node)+" have ended", "")
		}
		return missing("name", fmt.Sprintf("nothing to send: %s was not sent %s", quoted(c.node), what), "chancery explain NODE TYPE/NAME shows why")
	}
	return nil
}

// resync makes a stream send resources again. The result has the types of which it sends any. A stream
// that has ended, or has not begun, sends nothing.
func (s *Server) resync(ctx context.Context, st *server.Stream, c *clientCommand) (all []api.SentType, err error) {
	types := []*xds.Type{c.typ}
	if c.typ == nil {
		types = nil
		err = st.Inspect(ctx, func(session *protocol.Session) {
			for _, t := range session.States() {
				types = append(types, t.Type)
			}
		})
	}
	for _, t := range types {
		if err != nil {
			break
		}
		sent := api.SentType{Type: cmp.Or(t.Short, t.URL)}
		sent.Resources, err = st.Resend(ctx, t, c.in.Name)
		if err == nil && s.Release != nil {
			sent.Released = s.Release(st, t, c.in.Name)
		}
		if sent.Resources+sent.Released > 0 {
			all = append(all, sent)
		}
	}
	if errors.Is(err, server.ErrEnded) || errors.Is(err, server.ErrNotBegun) {
		err = nil
	}
	return all, err
}

func addSent(all, more []api.SentType) []api.SentType {
	for _, t := range more {
		i := slices.IndexFunc(all, func(o api.SentType) bool { return o.Type == t.Type })
		if i < 0 {
			all = append(all, api.SentType{Type: t.Type})
			i = len(all) - 1
		}
		all[i].Resources += t.Resources
		all[i].Released += t.Released
	}
	return all
}

// A groupJob is a command for many streams, which are spread over GroupTime.
type groupJob struct {
	streams []*server.Stream
	do      func(context.Context, *server.Stream)
}

func (s *Server) commandGroup(c *clientCommand, out *api.ClientCommand) error {
	if err := s.knownGroup(c.group); err != nil {
		return err
	}
	job := groupJob{streams: s.Tracker.Selected(clients.Filter{All: true, Group: c.group})}
	job.do = func(_ context.Context, st *server.Stream) { st.Disconnect() }
	if c.name == "resync" {
		job.do = func(ctx context.Context, st *server.Stream) {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			_, _ = s.resync(ctx, st, c) // the other streams do not depend on this one
		}
	}
	out.Streams, out.Over = len(job.streams), s.GroupTime.String()
	if out.Streams == 0 {
		return nil
	}
	select {
	case s.groupJobs <- job:
		return nil
	default:
		return &problem{http.StatusTooManyRequests, "", "another command for a group is under way on this server", "it takes " + s.GroupTime.String() + " at most"}
	}
}

// RunGroupCommands carries out the commands for groups, one at a time, until ctx is done. Their streams
// are spread over GroupTime, so that clients do not all reconnect or load at once.
func (s *Server) RunGroupCommands(ctx context.Context) {
	s.prepare()
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.groupJobs:
			s.spreadOut(ctx, job)
		}
	}
}

func (s *Server) spreadOut(ctx context.Context, job groupJob) {
	rand.Shuffle(len(job.streams), func(i, j int) { job.streams[i], job.streams[j] = job.streams[j], job.streams[i] })
	pause := time.NewTicker(max(s.GroupTime/time.Duration(len(job.streams)), time.Nanosecond))
	defer pause.Stop()
	for _, st := range job.streams {
		job.do(ctx, st)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// commandOthers passes a command on to the other servers of the store, and adds their answers to the
// result of this server.
func (s *Server) commandOthers(r *http.Request, c *clientCommand, here api.ClientCommand, failed error) (out api.ClientCommand, err error) {
	p, is := errors.AsType[*problem](failed)
	if failed != nil && (!is || p.code != http.StatusNotFound) {
		return here, failed
	}
	in, err := json.Marshal(c.in)
	if err != nil {
		return here, err
	}
	me := api.Replica{ID: s.About.ID, Host: s.About.Host, Version: s.About.Version, Since: s.About.Since, Asked: true}
	out, done := here, failed == nil
	all, unsure := s.Replicas.Order(r.Context(), r.URL.EscapedPath(), in, commandSize, func(of *api.Replica, body []byte) {
		var is api.ClientCommand
		switch {
		case body == nil: // the server does not have the node or the group
			return
		case json.Unmarshal(body, &is) != nil || is.Kind != api.KindClientCommand:
			of.Error = errOther.Error()
			return
		}
		done = true
		out.Streams += counted(is.Streams)
		out.Over = cmp.Or(out.Over, textutil.Head(is.Over, maxWords))
		for i := range is.Types {
			t := &is.Types[i]
			t.Type, t.Resources, t.Released = textutil.Head(t.Type, maxWords), counted(t.Resources), counted(t.Released)
		}
		out.Types = addSent(out.Types, few(is.Types, maxTold))
	})
	out.Replicas = slices.Insert(all, 0, me)
	if unsure != nil {
		out.Unsure = unsure.Error()
	}
	silent := slices.IndexFunc(all, func(of api.Replica) bool { return of.Error != "" })
	forbids := slices.IndexFunc(all, func(of api.Replica) bool { return of.Forbidden })
	switch {
	case forbids >= 0 && !done: // the server of the client decides
		return out, &problem{http.StatusForbidden, api.RoleField, fmt.Sprintf("server %s: %s", all[forbids].ID, all[forbids].Error), ""}
	case silent >= 0 && c.group != "": // each server of the store may have clients of the group
		return out, unreached(&out)
	case done:
		return out, nil
	case silent >= 0:
		return out, &problem{http.StatusServiceUnavailable, "", fmt.Sprintf("%s; server %s may have the client: %s", p.message, all[silent].ID, all[silent].Error), "run the command with --admin for that server"}
	}
	return out, failed
}

// unreached returns the error for a command for a group that some servers of the store have not taken.
func unreached(out *api.ClientCommand) error {
	var servers []string
	for _, of := range out.Replicas {
		if of.Error != "" {
			servers = append(servers, fmt.Sprintf("server %s: %s", of.ID, of.Error))
		}
	}
	text := fmt.Sprintf("%s of group %s: clients not reached: %s", out.Command, out.Group, strings.Join(few(servers, named), "; "))
	if more := len(servers) - named; more > 0 {
		text += fmt.Sprintf("; and %s", textutil.Amount(more, "more server"))
	}
	if out.Streams > 0 {
		text += fmt.Sprintf("; reached: %s of the other servers", textutil.Amount(out.Streams, "stream"))
	}
	return &problem{http.StatusServiceUnavailable, "", text, "run the command with --local, and with --admin for each of these servers"}
}
