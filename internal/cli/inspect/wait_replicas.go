package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
)

// waitAll waits until the clients of all servers of a store have accepted a revision, until another
// result arrives, or until the time is over. The revision 0 means the revision that the asked server
// serves. The result is nil if the server has no store, or is too old to ask other servers.
func waitAll(cmd *cobra.Command, a *cli.AdminFlags, dir string, f adminclient.Filter, want revisions.Number, end time.Time) (*api.WaitResult, error) {
	d, err := a.Dial()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s, err := cli.AskOver(cmd, d, cli.GetStatus)
	if err != nil {
		return nil, err
	}
	if s.Config.Store == nil || s.Server.ID == "" {
		return nil, nil
	}
	stored := s.Config.Store.Revision
	if want > 0 {
		stored = want.String()
	}
	if stored == "" { // before the first revision: wait only for the asked server
		return nil, nil
	}
	at, err := a.Identify(cmd, d, dir)
	if err != nil {
		return nil, err
	}
	return askUntilServed(cmd, d, f, stored, at, end)
}

// askUntilServed repeats a request until all servers of the store serve a revision and their clients have
// accepted it, or until the time is over. The result is nil if the asked server cannot ask other servers.
func askUntilServed(cmd *cobra.Command, d *adminclient.Client, f adminclient.Filter, stored, at string, end time.Time) (*api.WaitResult, error) {
	p := newProgress(cmd.ErrOrStderr(), stored)
	defer p.end()
	for began := time.Now(); ; began = time.Now() {
		ctx, cancel := context.WithTimeoutCause(cli.Context(cmd), cli.AskTimeout, fmt.Errorf("no answer for %v", cli.AskTimeout))
		r, err := d.WaitAll(ctx, f, stored)
		cancel()
		refused, is := errors.AsType[*adminclient.Refused](err)
		over := time.Until(end) <= 0
		switch busy := is && refused.Code == http.StatusServiceUnavailable && !over; {
		case is && refused.Code == http.StatusBadRequest && refused.Answer.Field == "replicas":
			return nil, nil
		case err != nil && !busy:
			return nil, cli.AdminError(err)
		case !busy:
			p.show(r)
			if r.Done || r.Rejected != nil || len(r.Refusals) > 0 || over {
				p.end()
				if r.Done {
					fmt.Fprintf(cmd.ErrOrStderr(), "chancery: asked %s, and %s of the store\n", at, text.Amount(len(r.Replicas)-1, "other server"))
				}
				if x := r.Replicas[0]; over && len(r.Replicas) == 1 && !x.Served && r.Rejected == nil {
					return nil, notServed(stored, x.Revision, x.Trouble)
				}
				return r, nil
			}
		}
		time.Sleep(min(100*time.Millisecond-time.Since(began), time.Until(end))) // Sleep returns immediately for a negative time
	}
}

// rejectedNewest returns an error if a server of the store has rejected the newest configuration: the
// directory that it commits, or the newest revision. With local it checks only the asked server.
func rejectedNewest(cmd *cobra.Command, a *cli.AdminFlags, local bool) error {
	s, err := cli.Ask(cmd, a, func(ctx context.Context, d *adminclient.Client) (*api.Status, error) {
		s, err := d.Status(ctx, "")
		if err == nil && s.Config.Store != nil && s.Server.ID != "" && !local {
			if all, err := d.StatusOfAll(ctx, ""); err == nil {
				return all, nil
			} // the server is too old to ask others
		}
		return s, err
	})
	if err != nil || s.Config.Store == nil {
		return err
	}
	all := s.Replicas
	if len(all) == 0 {
		all = []api.Replica{{ID: cmp.Or(s.Server.ID, s.Server.Replica), Revision: s.Config.Store.Revision, Rejected: s.Config.Rejected}}
		if w := s.Config.Store.Writer; w != nil {
			all[0].Unwritten = w.Error
		}
	}
	for _, r := range all {
		why := ""
		switch {
		case r.Error != "":
		case r.Unwritten != "":
			why = fmt.Sprintf("server %s does not commit its directory: %s", text.Line(r.ID), text.Line(r.Unwritten))
		case r.Rejected != nil:
			why = fmt.Sprintf("server %s serves %s, since it rejects the newest revision: %s", text.Line(r.ID), cmp.Or(text.Line(r.Revision), "nothing"), text.Line(strings.Join(r.Rejected.Errors, "; ")))
		}
		if why != "" {
			return cli.FailWith(cli.Failed, errors.New("not synced: "+why), "chancery status shows details; --revision waits for the served revision instead")
		}
	}
	return nil
}

// notServed returns the error if a server does not serve a revision in time.
func notServed(want, is, trouble string) error {
	return cli.FailWith(cli.TimedOut, fmt.Errorf("revision %s is not served yet: %s is%s", want, cmp.Or(is, "none"), cli.Prefixed(": ", text.Line(trouble))), "")
}

// behind lists the servers that do not serve the awaited revision.
func behind(r *api.WaitResult) (all []string) {
	for _, x := range r.Replicas {
		switch {
		case x.Error != "":
			all = append(all, fmt.Sprintf("server %s does not answer%s: %s", text.Line(x.ID), lastSeen(x), text.Line(x.Error)))
		case !x.Served:
			all = append(all, fmt.Sprintf("server %s serves %s", text.Line(x.ID), cmp.Or(text.Line(x.Revision), "nothing")))
		}
	}
	if r.Unsure != "" {
		all = append(all, "there may be other servers: "+text.Line(r.Unsure))
	}
	return all
}

// A progress shows how many servers and clients have a revision. On a terminal it redraws a bar. For
// other writers it prints a line after each change.
type progress struct {
	w       io.Writer
	columns int // 0: not a terminal
	what    string
	last    string
}

func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what}
	if f, ok := w.(*os.File); ok {
		p.columns, _ = cli.TerminalSize(f)
		if p.columns < cli.MinColumns {
			p.columns = 0
		}
	}
	return p
}

// spread counts the clients of all servers by their answers to the revision, and the servers that serve
// it.
func spread(r *api.WaitResult) (acked, refused, waiting, serving int) {
	for _, x := range r.Replicas {
		if x.Clients == nil {
			continue
		}
		if x.Served {
			serving++
			acked += x.Clients.By[api.Synced] + x.Clients.By[api.Idle]
			refused += x.Clients.By[api.Nacked]
		}
		waiting += x.Clients.Connected
	}
	return acked, refused, max(waiting-acked-refused, 0), serving
}

const barWidth = 20

func (p *progress) show(r *api.WaitResult) {
	acked, refused, waiting, serving := spread(r)
	text := fmt.Sprintf("%s: %s acked, %s refused, %s waiting; served by %d of %s", p.what, text.Number(acked), text.Number(refused), text.Number(waiting), serving, text.Amount(len(r.Replicas), "server"))
	if p.columns == 0 {
		if text != p.last {
			fmt.Fprintln(p.w, "chancery: "+text)
		}
		p.last = text
		return
	}
	full := 0
	if all := acked + refused + waiting; all > 0 {
		full = barWidth * acked / all
	}
	line := "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] " + text
	if len(line) >= p.columns {
		line = line[:p.columns-1]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.last = line
}

// end ends the line of the bar.
func (p *progress) end() {
	if p.columns > 0 && p.last != "" {
		fmt.Fprintln(p.w)
		p.last = ""
	}
}
