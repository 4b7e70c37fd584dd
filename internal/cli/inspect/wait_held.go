package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// settles is for how long a group must be seen frozen: a server hears of a rollout that was begun just now within that time.
const settles = 2 * time.Second

// asksAgain is after what time a server is asked again that has nothing to say by itself.
const asksAgain = 500 * time.Millisecond

// waitHeld waits while rollouts take groups to a revision, or to a later one. It is an error if a group is served of an
// earlier one then: nobody has what is waited for, though the servers serve it. Without a group all groups count.
// It reports whether it has waited, and clients may have been told something since.
func waitHeld(cmd *cobra.Command, a *cli.AdminFlags, group string, want revisions.Number, end time.Time) (waited bool, err error) {
	if want == 0 {
		return false, nil
	}
	d, err := a.Dial()
	if err != nil {
		return false, err
	}
	defer d.Close()
	var frozen time.Time // since when no rollout will change it
	said := ""
	for ; ; time.Sleep(min(asksAgain, time.Until(end))) {
		s, err := cli.AskOver(cmd, d, cli.GetStatus)
		if err != nil {
			return waited, err
		}
		of := s.Config.Store
		if of == nil {
			return waited, nil
		}
		if n, _ := revisions.ParseNumber(of.Revision); n < want {
			return waited, nil // others say that it is not served yet, or why not
		}
		var stays, goes []string
		hint := ""
		for _, h := range earlier(of.Holds, group, want) {
			if next, err := revisions.ParseNumber(h.Next); err == nil && next >= want {
				goes = append(goes, fmt.Sprintf("rollout %s of group %s to %s is under way", textutil.Line(h.Rollout), textutil.Line(h.Group), next))
			} else {
				text := fmt.Sprintf("group %s is frozen at %s", textutil.Line(h.Group), textutil.Line(h.Revision))
				hint = fmt.Sprintf("chancery unfreeze %s, or chancery rollout start %s, has it served; -g GROUP waits for another group", textutil.Line(h.Group), want)
				if why := rolledBack(of.RolledBack, h.Group, want); why != "" {
					text += ", as " + why
					hint = "chancery rollout status says more; -g GROUP waits for another group"
				}
				stays = append(stays, text)
			}
		}
		over := time.Until(end) <= 0
		if len(stays) == 0 {
			frozen = time.Time{}
		} else if frozen.IsZero() {
			frozen = time.Now()
		}
		switch text := strings.Join(goes, "; "); {
		case len(stays) > 0 && (over || time.Since(frozen) >= settles):
			return waited, cli.FailWith(cli.Failed, fmt.Errorf("not synced: %s, and so is not served %s", strings.Join(stays, "; "), want), hint)
		case len(stays) > 0:
		case text == "":
			return waited, nil
		case over:
			return waited, cli.FailWith(cli.TimedOut, errors.New("not synced: "+text), "chancery rollout status says what it waits for")
		case text != said:
			fmt.Fprintln(cmd.ErrOrStderr(), "chancery: "+text)
			said = text
		}
		waited = true
	}
}

// rolledBack says of a group why a rollout to a revision, or to a later one, was taken back; "": none was.
func rolledBack(all []api.RolledBack, group string, want revisions.Number) string {
	for _, x := range all {
		if n, err := revisions.ParseNumber(x.Revision); err == nil && n >= want && slices.Contains(x.Groups, group) {
			return fmt.Sprintf("rollout %s to %s was rolled back: %s", textutil.Line(x.Rollout), n, textutil.Line(x.Why))
		}
	}
	return ""
}

// earlier are the groups that are served of an earlier revision.
func earlier(holds []api.Hold, group string, than revisions.Number) []api.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h api.Hold) bool {
		n, err := revisions.ParseNumber(h.Revision)
		return err != nil || n >= than || group != "" && h.Group != group
	})
}
