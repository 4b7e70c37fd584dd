package inspect

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
)

// watchXDSFlags are the flags of chancery watch for an xDS server.
type watchXDSFlags struct {
	xdsclient.Flags
	xdsclient.ShowFlags
	follow bool
	nack   string
	sets   []string
}

// register adds the flags that watch has only for an xDS server.
func (x *watchXDSFlags) register(f *pflag.FlagSet) {
	x.Flags.Register(f)
	cli.TitledFlags(f, xdsclient.FlagsTitle, func(f *pflag.FlagSet) {
		f.StringVar(&x.Cluster, "cluster", "", "`NAME` of the cluster of the client's node")
		f.StringVar(&x.JSON, "node-json", "", "the client's node as `JSON` or YAML; @FILE reads it from a file, - from stdin")
		xdsclient.FollowRefsFlag(f, &x.follow)
		xdsclient.NackFlag(f, &x.nack)
		x.ShowFlags.Register(f)
		dirload.ProtoSetFlag(f, &x.sets)
	})
}

// server watches an xDS server.
func (w *watchFlags) server(cmd *cobra.Command, args []string) error {
	if w.typ != "" || len(w.filter.Kinds) > 0 {
		return errors.New("--type and --kind are not for an xDS server: select resources by arguments: TYPE, TYPE/NAME")
	}
	x := &w.xds
	x.ID = w.filter.Node
	s, err := x.Server(args[0])
	if err != nil {
		return err
	}
	asked, err := xdsclient.ParseQuestions(args[1:])
	if err != nil {
		return err
	}
	x.Types, err = dirload.ReadProtoSets(x.sets)
	if err != nil {
		return err
	}
	o, err := s.Options(cmd, x.Types)
	if err != nil {
		return err
	}
	o.Refuse = x.nack
	o.Asked = asked
	if len(asked) == 0 {
		o.Asked = xdsclient.AllTypes()
	}
	if x.follow || len(asked) == 0 {
		o.Refs = xdsclient.References(x.Types)
	}
	v := conversation{watchFlags: w, watchXDSFlags: x, server: s, out: cmd.OutOrStdout(), broken: map[string]string{}}
	return s.Converse(cmd, o, w.during, v.print)
}

// A conversation prints the exchange between a client and an xDS server.
type conversation struct {
	*watchFlags
	*watchXDSFlags

	server *xdsclient.Server
	out    io.Writer

	connected bool
	last      string            // the last error that was printed
	broken    map[string]string // printed errors of resources
}

// print prints a step if it is new.
func (v *conversation) print(step fetch.Step) {
	m := xdsclient.MessageOf(step, v.server)
	switch {
	case step.Response != nil && !v.connected:
		v.connected, v.last = true, ""
		(&xdsclient.Message{At: step.At, Kind: "connected", Server: v.server.Text}).Print(v.out, !v.ForPeople())
		if v.nack == "" && !m.Malformed(step.Response, v.broken) {
			return
		}
	case (step.Request != nil || step.Response != nil) && v.nack == "" && !m.Malformed(step.Response, v.broken):
		return
	case m.Error != "" && m.Error == v.last && v.ForPeople():
		return // the client repeats the error with each attempt, and for each resource
	case step.End != nil:
		v.connected, v.last = false, m.Error
	case step.Event != nil && step.Event.Kind == client.Stale:
		v.last = m.Error
	case step.Event != nil && step.Event.Kind == client.Updated && !v.ForPeople():
		m.Body, _, _ = v.Body(step.Event.Resource) // an undecodable resource has no body
	}
	m.Print(v.out, !v.ForPeople())
}
