package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
)

// A watchingXDS is what watch was asked for of a server that is any.
type watchingXDS struct {
	xdsFlags
	showing
	follow bool
	nack   string
	sets   []string
}

// more adds the flags that watch has for it alone.
func (x *watchingXDS) more(f *pflag.FlagSet) {
	x.xdsFlags.flags(f)
	titled(f, xdsTitle, func(f *pflag.FlagSet) {
		f.StringVar(&x.cluster, "cluster", "", "`NAME` of the cluster of the node that asks")
		f.StringVar(&x.json, "node-json", "", "the node that asks as `JSON` or YAML; @FILE reads it from a file, - from stdin")
		followRefsFlag(f, &x.follow)
		nackFlag(f, &x.nack)
		x.showing.flags(f)
		setFlag(f, &x.sets)
	})
}

// server watches an xDS server.
func (w *watching) server(cmd *cobra.Command, args []string) error {
	if w.typ != "" || len(w.filter.Kinds) > 0 {
		return errors.New("--type and --kind: of an xDS server say what by arguments: TYPE, TYPE/NAME")
	}
	x := &w.xds
	x.id = w.filter.Node
	s, err := x.server(args[0])
	if err != nil {
		return err
	}
	asked, err := questions(args[1:])
	if err != nil {
		return err
	}
	if x.types, err = readSets(x.sets); err != nil {
		return err
	}
	o, err := s.options(cmd, x.types)
	if err != nil {
		return err
	}
	o.Refuse = x.nack
	if o.Asked = asked; len(asked) == 0 {
		o.Asked = everything()
	}
	if x.follow || len(asked) == 0 {
		o.Refs = references(x.types)
	}
	connected, last, broken := false, "", map[string]string{}
	return s.converse(cmd, o, w.during, func(step fetch.Step) {
		m := messageOf(step, s)
		switch {
		case step.Response != nil && !connected:
			connected, last = true, ""
			(&xdsMessage{At: step.At, Kind: "connected", Server: s.text}).print(cmd.OutOrStdout(), !w.people())
			if x.nack == "" && !m.malformed(step.Response, broken) {
				return
			}
		case (step.Request != nil || step.Response != nil) && x.nack == "" && !m.malformed(step.Response, broken):
			return
		case m.Error != "" && m.Error == last && w.people():
			return // said again with each attempt, and of each resource
		case step.End != nil:
			connected, last = false, m.Error
		case step.Event != nil && step.Event.Kind == client.Stale:
			last = m.Error
		case step.Event != nil && step.Event.Kind == client.Updated && !w.people():
			m.Body, _, _ = x.body(step.Event.Resource) // what cannot be shown has none
		}
		m.print(cmd.OutOrStdout(), !w.people())
	})
}
