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

// settleTime is how long a group must be frozen without a rollout before waitHeld reports an error. A
// server learns of a new rollout within this time.
const settleTime = 2 * time.Second

// pollInterval is the time between two requests for a state that the server does not report by itself.
const pollInterval = 500 * time.Millisecond

// waitHeld waits for the end of rollouts that move groups to a revision or a later one. Without a group
// it waits for all groups. If a group is then frozen at an earlier revision, it returns an error, because
// the clients of the group do not get the awaited revision. hasWaited reports whether it has waited;
// clients may then have got responses in the meantime.
func waitHeld(cmd *cobra.Command, a *cli.AdminFlags, group string, want revisions.Number, end time.Time) (hasWaited bool, err error) {
	if want == 0 {
		return false, nil
	}
	d, err := a.Dial()
	if err != nil {
		return false, err
	}
	defer d.Close()
	var frozen time.Time // when a group was first seen frozen without a rollout to the revision
	said := ""
	for ; ; time.Sleep(min(pollInterval, time.Until(end))) {
		s, err := cli.AskOver(cmd, d, cli.GetStatus)
		if err != nil {
			return hasWaited, err
		}
		of := s.Config.Store
		if of == nil {
			return hasWaited, nil
		}
		if n, _ := revisions.ParseNumber(of.Revision); n < want {
			return hasWaited, nil // other functions report that the server does not serve the revision yet
		}
		var stays, goes []string
		hint := ""
		for _, h := range earlier(of.Holds, group, want) {
			if next, err := revisions.ParseNumber(h.Next); err == nil && next >= want {
				goes = append(goes, fmt.Sprintf("rollout %s of group %s to %s is under way", textutil.Line(h.Rollout), textutil.Line(h.Group), next))
			} else {
				text := fmt.Sprintf("group %s is frozen at %s", textutil.Line(h.Group), textutil.Line(h.Revision))
				hint = fmt.Sprintf("chancery unfreeze %s, or chancery rollout start %s, serves it; -g GROUP waits for another group", textutil.Line(h.Group), want)
				if why := rolledBack(of.RolledBack, h.Group, want); why != "" {
					text += ", because " + why
					hint = "chancery rollout status shows details; -g GROUP waits for another group"
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
		case len(stays) > 0 && (over || time.Since(frozen) >= settleTime):
			return hasWaited, cli.FailWith(cli.Failed, fmt.Errorf("not synced: %s, so %s is not served", strings.Join(stays, "; "), want), hint)
		case len(stays) > 0:
		case text == "":
			return hasWaited, nil
		case over:
			return hasWaited, cli.FailWith(cli.TimedOut, errors.New("not synced: "+text), "chancery rollout status shows what it waits for")
		case text != said:
			fmt.Fprintln(cmd.ErrOrStderr(), "chancery: "+text)
			said = text
		}
		hasWaited = true
	}
}

// rolledBack returns the reason why the rollout of a group, to a revision or a later one, was rolled
// back; else "".
func rolledBack(all []api.RolledBack, group string, want revisions.Number) string {
	for _, x := range all {
		if n, err := revisions.ParseNumber(x.Revision); err == nil && n >= want && slices.Contains(x.Groups, group) {
			return fmt.Sprintf("rollout %s to %s was rolled back: %s", textutil.Line(x.Rollout), n, textutil.Line(x.Why))
		}
	}
	return ""
}

// earlier returns the groups that are frozen at an earlier revision.
func earlier(holds []api.Hold, group string, than revisions.Number) []api.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h api.Hold) bool {
		n, err := revisions.ParseNumber(h.Revision)
		return err != nil || n >= than || group != "" && h.Group != group
	})
}
