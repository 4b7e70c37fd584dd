package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text"
)

// maxLinks is the maximum number of links in an explanation of another server. A chain has 10 links.
const maxLinks = 20

// connectedLink is the name of the link about the client's connection.
const connectedLink = "connected"

// explainOfAll answers with the explanation of the server to which the client is connected.
func (s *Server) explainOfAll(w http.ResponseWriter, r *http.Request) error {
	var explanations []api.Explanation // the explanation of this server comes first
	all, err := s.survey(r, &s.asking, clientSize, nil, func(me *api.Replica) error {
		e, err := s.explainNow(r)
		e.Replica = me.ID
		explanations = append(explanations, e)
		return err
	}, func(of *api.Replica, body []byte) error {
		if body == nil { // a server of another version, which cannot explain
			return errOther
		}
		e, err := readExplanation(body)
		e.Replica = of.ID
		if err == nil {
			explanations = append(explanations, e)
		}
		return err
	})
	if err != nil {
		return err
	}
	e := bestExplanation(explanations)
	e.Replicas, e.Unsure = all.replicas, all.unsure
	if len(all.replicas) > 1 {
		addUnansweredServers(&e)
	}
	answer(w, http.StatusOK, e)
	return nil
}

// readExplanation decodes an explanation of another server and checks it, because other servers are not
// trusted.
func readExplanation(body []byte) (api.Explanation, error) {
	var is api.Explanation
	if err := json.Unmarshal(body, &is); err != nil || is.Kind != api.KindExplanation || len(is.Links) > maxLinks {
		return is, errOther
	}
	e := api.Explanation{
		APIVersion: api.Version, Kind: api.KindExplanation, Node: text.Head(is.Node, maxWords), Type: text.Head(is.Type, maxWords), Name: text.Head(is.Name, maxWords),
		Broken: text.Head(is.Broken, maxWords), Advice: text.Head(is.Advice, maxWords), Clients: counted(is.Clients), Last: is.Last, Links: []api.Link{},
	}
	for _, l := range is.Links {
		e.Links = append(e.Links, api.Link{Name: text.Head(l.Name, maxWords), OK: l.OK, Known: l.Known, Text: text.Head(l.Text, maxWords), Place: text.Head(l.Place, maxWords)})
		if l.Name == connectedLink && l.OK { // an older version does not count clients
			e.Clients = max(e.Clients, 1)
		}
	}
	return e, nil
}

// bestExplanation selects the explanation of the server to which the client is connected. If clients with
// the node ID are connected to several servers, it prefers a broken chain. If the client is not
// connected, it selects the server that had the client last.
func bestExplanation(explanations []api.Explanation) api.Explanation {
	best := 0
	for i := range explanations {
		if better(&explanations[i], &explanations[best]) {
			best = i
		}
	}
	e := explanations[best]
	e.Clients = 0
	for i := range explanations {
		n := explanations[i].Clients
		e.Clients += n
		if n > 0 && i != best {
			addToConnected(&e, "; %d more of this node id at server %s", n, explanations[i].Replica)
		}
	}
	return e
}

func better(a, b *api.Explanation) bool {
	switch {
	case (a.Clients > 0) != (b.Clients > 0):
		return a.Clients > 0
	case a.Clients > 0:
		return a.Broken != "" && b.Broken == ""
	}
	return last(a).After(last(b))
}

func last(e *api.Explanation) time.Time {
	if e.Last == nil {
		return time.Time{}
	}
	return *e.Last
}

// addToConnected adds to the text of the connection link.
func addToConnected(e *api.Explanation, format string, args ...any) {
	e.Links = slices.Clone(e.Links)
	for i := range e.Links {
		if l := &e.Links[i]; l.Name == connectedLink {
			l.Text += fmt.Sprintf(format, args...)
		}
	}
}

// addUnansweredServers adds the number of servers without the client to the connection link. It also adds
// the number of servers that did not answer, because the client may be connected to one of these.
func addUnansweredServers(e *api.Explanation) {
	silent := 0
	for _, r := range e.Replicas {
		if r.Error != "" {
			silent++
		}
	}
	switch n := len(e.Replicas); {
	case e.Clients > 0:
	case silent == 0:
		addToConnected(e, "; it is at none of the %d servers of the store", n)
	default:
		addToConnected(e, "; it is at none of the %d servers of the store that answered, and may be at one of the %d that did not", n-silent, silent)
		if e.Broken == connectedLink {
			e.Advice = "see why a server does not answer: the client may be there. Else " + e.Advice
		}
	}
}
