package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
)

// accessHelp is the part of the help that resync and disconnect share.
const accessHelp = `NODE is one exact ID. With --all --group GROUP the command reaches all clients of a group,
spread over the server's --drain time. On a terminal or in a script, --yes confirms that.

The server takes the command only from an authenticated caller. On the machine of the
server, its user needs no flag: the command uses the control socket of the server that
answers at --admin. From elsewhere give --admin unix:///PATH, --admin-token-file or
--admin-cert. A server of a store passes the command on to the server that has the client.
A command for a group fails if a server of the store does not take it; the others still do.
`

// Resync returns the command resync.
func Resync() *cobra.Command {
	return commandClients(clientCommandHelp{
		name: "resync", use: "resync NODE [TYPE[/NAME]]", short: "Send a client its resources again, also those that it refused", args: 2,
		long: `Resync sends a client again what it has: all resources, those of a type, or one. A resource that
the client refused is sent again, too, also out of quarantine. Use it after you have removed
the cause of a refusal outside of the configuration, such as a missing file or a port in use.
The responses follow the usual order, so they may wait for answers of the client.

` + accessHelp + `
Exit codes: 0 the resources are sent again; 1 it failed; 2 wrong usage; 3 no server answers,
or it denies access; 4 no server has the client, or the client has no such resource.`,
		example: `  chancery resync edge-7d9f-x2
  chancery resync edge-7d9f-x2 listener/http
  chancery resync --all --group edge cluster --yes`,
	})
}

// Disconnect returns the command disconnect.
func Disconnect() *cobra.Command {
	return commandClients(clientCommandHelp{
		name: "disconnect", use: "disconnect NODE", short: "End the streams of a client, which reconnects", args: 1,
		long: `Disconnect ends all xDS streams of a client with UNAVAILABLE. The client keeps its resources and
reconnects by itself, possibly to another server.

` + accessHelp + `
Exit codes: 0 the streams end; 1 it failed; 2 wrong usage; 3 no server answers, or it denies
access; 4 no server has the client.`,
		example: `  chancery disconnect edge-7d9f-x2
  chancery disconnect --all --group edge --yes`,
	})
}

type clientCommandHelp struct {
	name, use, short, long, example string
	args                            int // maximum number, with NODE
}

func commandClients(h clientCommandHelp) *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var group string
	var all, yes, local bool
	cmd := &cobra.Command{
		Use: h.use, Short: h.short, Long: h.long, Example: h.example,
		Args: func(_ *cobra.Command, args []string) error {
			most := h.args
			if all {
				most--
			}
			switch {
			case len(args) > most, !all && len(args) == 0:
				return fmt.Errorf("usage: chancery %s, or --all --group GROUP instead of NODE", h.use)
			case !all && args[0] == "":
				return errors.New("NODE is empty: for a client without an id use its stream, such as stream:41; chancery get clients lists it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			node := ""
			switch {
			case all && group == "":
				return errors.New("--all needs --group: chancery get groups lists the groups")
			case all && !yes:
				return fmt.Errorf("--all reaches all clients of group %s: confirm it with --yes", text.Line(group))
			case !all && group != "":
				return errors.New("--group needs --all")
			case !all:
				node, args = args[0], args[1:]
			}
			in := api.ClientRequest{Author: author()}
			if len(args) == 1 {
				t, name, err := cli.ParseTypeAndName(args[0])
				if err != nil {
					return err
				}
				in.Type, in.Name = cli.TypeInPath(t), name
			}
			done, err := cli.AskAuthenticated(cmd, &a, func(ctx context.Context, d *adminclient.Client) (*api.ClientCommand, error) {
				return d.CommandClients(ctx, h.name, node, group, in, !local)
			})
			if err != nil {
				return err
			}
			if !o.ForPeople() {
				return cli.PrintData(&o, cmd.OutOrStdout(), done, []api.ClientCommand{*done}, nil)
			}
			printClientCommand(cmd.OutOrStdout(), done)
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&all, "all", false, "all clients of the --group, instead of NODE")
	cmd.Flags().StringVar(&group, "group", "", "`GROUP` of resources whose clients --all means")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --all")
	cli.LocalFlag(cmd.Flags(), &local)
	o.Register(cmd, "text", "json", "yaml")
	a.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteArg(&a, cli.CompleteNodes, cli.CompleteResources)
	cli.ServerUsage(cmd)
	return cmd
}

// author returns the name of the user, for the log of the server.
func author() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func printClientCommand(w io.Writer, c *api.ClientCommand) {
	where := text.Amount(c.Streams, "stream")
	switch {
	case c.Group != "" && c.Command == "resync":
		fmt.Fprintf(w, "ok: the clients of group %s are sent their resources again: %s within %s\n", text.Line(c.Group), where, text.Line(c.Over))
	case c.Group != "":
		fmt.Fprintf(w, "ok: the streams of group %s end: %s within %s\n", text.Line(c.Group), where, text.Line(c.Over))
	case c.Command == "resync":
		var all []string
		for _, t := range c.Types {
			one := fmt.Sprintf("%s of %s", text.Amount(t.Resources, "resource"), text.Line(t.Type))
			if t.Released > 0 {
				one += fmt.Sprintf(" (%s out of quarantine)", text.Amount(t.Released, "refused version"))
			}
			all = append(all, one)
		}
		fmt.Fprintf(w, "ok: %s is sent again on %s: %s\n", text.Line(c.Node), where, strings.Join(all, ", "))
	default:
		fmt.Fprintf(w, "ok: %s of %s: ended, and the client reconnects\n", where, text.Line(c.Node))
	}
	if t := unanswered(c.Replicas, c.Unsure, "reached"); t != "" {
		fmt.Fprintln(w, t)
	}
}
