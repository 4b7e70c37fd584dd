package xdsclient

import (
	"fmt"
	"io"
	"strings"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// Verdict returns an error if an answer is incomplete or has unusable resources, and prints warnings.
func (s *Server) Verdict(a *fetch.Answer, stderr io.Writer) error {
	switch {
	case len(a.Ends) > 0 && len(a.Resources) > 0:
		return s.partialError(a.Ends)
	case len(a.Ends) > 0:
		return s.endError(a.Ends[0])
	}
	for _, m := range a.Malformed {
		fmt.Fprintf(stderr, "chancery: warning: %s: %s\n", m.Type, textutil.Line(m.Err.Error()))
	}
	for _, r := range a.Resources {
		if r.Refused != nil {
			return cli.Fail(fmt.Errorf("%s/%s cannot be used: %s", r.Type, textutil.Line(r.Name), textutil.Lines(r.Refused.Error())), "")
		}
	}
	if n := len(a.Malformed); n > 0 {
		return cli.Fail(fmt.Errorf("%s: %s of the answer cannot be used", s.Text, textutil.Amount(n, "resource")), "")
	}
	if a.Unfinished {
		return cli.FailWith(cli.TimedOut, fmt.Errorf("%s: new resources kept arriving, so the answer is incomplete (--timeout)", s.Text), "")
	}
	var said, silent []string
	for _, m := range a.Missing {
		text := m.Type.String() + "/" + textutil.Line(m.Name)
		if m.Err != nil {
			text += ": " + textutil.Line(m.Err.Error())
		}
		switch {
		case m.Name == xds.Wildcard && len(a.Resources) > 0: // some servers send no response for a type without resources
			fmt.Fprintf(stderr, "chancery: warning: no answer for %s\n", text)
		case !m.Asked:
			fmt.Fprintf(stderr, "chancery: warning: %s is missing on the server, but another resource refers to it\n", text)
		case m.Denied:
			said = append(said, text)
		default:
			silent = append(silent, text)
		}
	}
	switch {
	case len(said) > 0:
		return cli.FailWith(cli.NotFound, fmt.Errorf("the server has no %s", someOf(append(said, silent...))), "")
	case len(silent) > 0 && len(a.Resources) > 0:
		hint := "a SotW server does not report missing resources"
		switch {
		case s.Delta:
			hint = "this server does not report missing resources"
		case !s.rest:
			hint += "; a delta server does: --delta"
		}
		return cli.FailWith(cli.NotFound, fmt.Errorf("no answer for %s within %v (--timeout)", someOf(silent), s.Timeout), hint)
	case len(silent) > 0:
		return s.noAnswer(someOf(silent))
	}
	return nil
}

// noAnswer returns the error for a server that sent no response.
func (s *Server) noAnswer(of string) error {
	hint := "many servers send resources only to a node that they know: --node"
	if s.NodeFlags.Given() {
		hint = "the server may have no such resources for this node, or send them only by name"
	}
	return cli.FailWith(cli.TimedOut, fmt.Errorf("%s: no answer for %s within %v (--timeout)", s.Text, of, s.Timeout), hint)
}

// someOf returns a text with the first texts, and the number of the others.
func someOf(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %s more", textutil.Number(len(all)-most))
	}
	return strings.Join(all, ", ")
}
